#!/bin/sh
# Changes the kubelets of nodes, one after the other, each while it is drained:
#
#   kubectl apply -k deployments/kubelet
#   deployments/kubelet/roll.sh fix NODE...     or: roll.sh back NODE...
#
# It stops at the first node that does not get well, and leaves that one cordoned. KUBECTL and DRAIN can say more, as in
# DRAIN='--ignore-daemonsets --delete-emptydir-data'; READY is how long a pod may take (5m).
set -eu
kubectl=${KUBECTL:-kubectl} drain=${DRAIN:---ignore-daemonsets --timeout=30m}
usage() {
	echo "usage: $0 fix|back NODE..." >&2
	exit 2
}
case ${1-} in fix | back) action=$1 ;; *) usage ;; esac
shift
[ $# -gt 0 ] || usage
for node in "$@"; do
	echo "== $node"
	$kubectl drain "$node" $drain
	pod="pod --namespace=kube-system --selector=app.kubernetes.io/name=tandem-kubelet-$action --field-selector=spec.nodeName=$node"
	# A pod of an earlier time is ready since then and does nothing now. This is before the label, so that no new one is meant.
	$kubectl delete $pod --timeout=2m
	$kubectl label --overwrite node "$node" tandem.dev/kubelet="$action"
	looks=0
	until [ -n "$($kubectl get $pod --output=name)" ]; do
		looks=$((looks + 1))
		[ $looks -lt 60 ] || { echo "no pod tandem-kubelet-$action comes to $node" >&2; exit 1; }
		sleep "${PAUSE:-2}"
	done
	$kubectl wait $pod --for=condition=Ready --timeout="${READY:-5m}"
	$kubectl wait node "$node" --for=condition=Ready --timeout=5m
	$kubectl uncordon "$node"
done
