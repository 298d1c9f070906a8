#!/bin/sh
# What the pods of the DaemonSets do on their node: node.sh fix|back FILE changes the kubelet's configuration or puts back what was there
# before, restarts the kubelet if that changed anything, and makes FILE when the kubelet is well. A kubelet that does not get well after
# a change gets its old configuration back; then the pod stays unready and its log says so.
set -u

# With hostPID, $$ is this container on the node: there its own tandem is run, in the node's mount namespace.
tandem=/proc/$$/root/usr/bin/tandem
on_node() { busybox nsenter -t 1 -m -u -i -- "$@"; }

# well waits until the kubelet has been healthy for ten looks on end; with settings that it refuses it dies within seconds.
well() {
	looks=0 good=0
	while [ $good -lt 10 ]; do
		[ $looks -lt 120 ] || return 1
		looks=$((looks + 1))
		if [ "$(busybox timeout 2 busybox wget -q -Y off -O - http://127.0.0.1:10248/healthz 2>/dev/null)" = ok ]; then
			good=$((good + 1))
		else
			good=0
		fi
		sleep "${PAUSE:-1}"
	done
}

# change runs tandem doctor with these flags and restarts the kubelet where it says that this is needed. Then back is what undoes it: a
# kubelet that is dead does not tell any more which files it reads.
back=
change() {
	said=$(on_node "$tandem" doctor "$@" 2>&1)
	code=$?
	echo "$said"
	[ $code = 0 ] || return 1
	case $said in
	*"Now: systemctl restart kubelet"*)
		back=$(echo "$said" | busybox sed -n 's/^The way back: tandem doctor //p')
		on_node systemctl restart kubelet
		;;
	esac
}

case $1 in
fix)
	change --fix-kubelet --apply && well && : >"$2" && exit 0
	if [ -n "$back" ]; then
		echo "The kubelet is not well: putting its configuration back."
		change $back && well && echo "It is well again with its old configuration."
	fi
	;;
back)
	change --rollback-kubelet && well && : >"$2" && exit 0
	;;
esac
echo "This node needs a person: journalctl -u kubelet"
exit 1
