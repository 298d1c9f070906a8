#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs in the pods of the DaemonSets on their node. "node.sh fix FILE" gives the kubelet the settings that it lacks, with the flags in FLAGS,
# "node.sh back FILE" takes them away. Both restart the kubelet if that is needed, and make FILE when the kubelet is well. A kubelet that
# does not become well after a fix gets the file from before the fix again, or none; then the pod stays unready and its log says so. The
# content from before is next to the file until the kubelet is well, so the next pod can still undo the fix of a pod that was killed. HEALTHZ
# is the URL of the kubelet's health where its configuration has another healthzPort or healthzBindAddress.
#
# A pod tries once. When its container is started again the node may have work: delete the pod on the drained node, as roll.sh does.
set -u
[ ! -e "$2" ] || exit 0
if ! (set -C && : >"$2.begun") 2>/dev/null; then
	echo "An earlier start of this container did not finish. Drain the node, then delete this pod: the next one does the rest."
	exit 1
fi

# With hostPID, $$ is this container on the node: there its own tandem is run, in the node's mount namespace.
tandem=/proc/$$/root/usr/bin/tandem
on_node() { busybox nsenter -t 1 -m -u -i -- "$@"; }

# well waits until the kubelet has been healthy for ten looks on end; with settings that it refuses it dies within seconds. Any process in
# the node's network can answer on the port of a kubelet that is dead, so systemd has to say that it runs.
well() {
	looks=0 good=0
	while [ $good -lt 10 ]; do
		[ $looks -lt 120 ] || return 1
		looks=$((looks + 1))
		if on_node systemctl is-active --quiet kubelet &&
			[ "$(busybox timeout 2 busybox wget -q -Y off -O - "${HEALTHZ:-http://127.0.0.1:10248/healthz}" 2>/dev/null)" = ok ]; then
			good=$((good + 1))
		else
			good=0
		fi
		sleep "${PAUSE:-1}"
	done
}

# change runs tandem doctor with these flags and restarts the kubelet where the output says that this is needed: a kubelet that is ill even
# if tandem doctor failed behind that line. Then undo has the flags that undo the change, each on a line, because a folder's name can have
# spaces: a kubelet that is dead does not tell where its drop-ins are. And before is the file to remove once the kubelet is well.
ill='' undo='' before=''
change() {
	said=$(on_node "$tandem" doctor "$@" 2>&1)
	code=$?
	echo "$said"
	undo=$(echo "$said" | busybox sed -n '/^To undo the change: tandem doctor /{s/^.*: tandem doctor //;s/ --/\n--/g;p;}')
	before=$(echo "$said" | busybox sed -n 's/^Once the kubelet is well: rm //p')
	[ $code = 0 ] || [ -n "$ill" ] || return 1
	case $said in
	*"Now: systemctl restart kubelet"*) on_node systemctl restart kubelet ;;
	esac
	return $code
}

case $1 in
fix)
	if change --fix-kubelet ${FLAGS-} --apply && well; then
		[ -z "$before" ] || on_node rm -f "$before"
		: >"$2"
		exit
	fi
	if [ -n "$undo" ]; then
		echo "The kubelet is not well: taking its new settings away."
		ill=yes
		set -f
		IFS='
'
		set -- $undo
		unset IFS
		change "$@" && well && echo "It is well again with its old settings."
	fi
	;;
back)
	change --rollback-kubelet && well && : >"$2" && exit 0
	;;
esac
echo "This node needs a person: journalctl -u kubelet"
exit 1
