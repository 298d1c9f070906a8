#!/bin/sh
# The SR-IOV network operator starts its plugin with arguments only, those of the stock image's script of this name.
# What starts with a dash is for tandem-rdma; anything else is a command.
set -eu
case ${1-} in
-*) ;;
*) exec "$@" ;;
esac
# The operator's DaemonSet has no volume at /run/tandem, and a root that is read-only. The two daemons meet in a folder below one that it
# does mount; the kubelet empties that one when it starts, but not folders in it.
if [ ! -d /run/tandem ]; then
	set -- --run-dir=/var/lib/kubelet/device-plugins/tandem "$@"
fi
exec tandem-rdma "$@"
