#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Changes the kubelets of nodes, one after the other, each while it is drained:
#
#   kubectl apply -k deployments/kubelet
#   deployments/kubelet/roll.sh fix NODE...     or: roll.sh back NODE...
#
# It stops at the first node that does not get well, and leaves that one cordoned. KUBECTL and DRAIN can say more, as in
# DRAIN='--ignore-daemonsets --delete-emptydir-data'. READY is how long a pod may take (15m): node.sh looks at the kubelet for up to 6
# minutes after the change, and again after it takes the change away. With less the pod can restart the kubelet after roll.sh has given up.
set -eu
kubectl=${KUBECTL:-kubectl} drain=${DRAIN:---ignore-daemonsets --timeout=30m}
usage() {
	echo "usage: $0 fix|back NODE..." >&2
	exit 2
}
case ${1-} in fix | back) action=$1 ;; *) usage ;; esac
shift
[ $# -gt 0 ] || usage
# Without the DaemonSet the label would start nothing now, and the pod at the time of a later apply.
$kubectl get daemonset --namespace=kube-system "tandem-kubelet-$action" --output=name >/dev/null || {
	echo "DaemonSet tandem-kubelet-$action not found, no node was changed: kubectl apply -k deployments/kubelet first" >&2
	exit 1
}
for node in "$@"; do
	echo "== $node"
	$kubectl drain "$node" $drain
	pod="pod --namespace=kube-system --selector=app.kubernetes.io/name=tandem-kubelet-$action --field-selector=spec.nodeName=$node"
	# A pod of an earlier time is ready since then and does nothing now. This is before the label, so that no new one is meant.
	$kubectl delete $pod --timeout=2m
	$kubectl label --overwrite node "$node" tandem.dev/kubelet="$action"
	looks=0
	until name=$($kubectl get $pod --output=name) && [ -n "$name" ]; do
		looks=$((looks + 1))
		[ $looks -lt 60 ] || {
			$kubectl label node "$node" tandem.dev/kubelet- # a pod that comes later would find a node that may be in use
			echo "no pod of tandem-kubelet-$action started on $node: the node stays cordoned, without the label" >&2
			exit 1
		}
		sleep "${PAUSE:-2}"
	done
	echo "waiting up to ${READY:-15m}; to follow: kubectl -n kube-system logs -f $name"
	$kubectl wait $pod --for=condition=Ready --timeout="${READY:-15m}"
	$kubectl wait node "$node" --for=condition=Ready --timeout=5m
	$kubectl uncordon "$node"
done
