#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Many manifests of the stock plugins name no program. What starts with a dash is for tandem-rdma: the SR-IOV network operator and the
# stock DaemonSet give arguments only, those of the stock image's script of this name. Anything else is a command.
set -eu
case ${1-} in
-*) exec tandem-rdma "$@" ;;
?*) exec "$@" ;;
esac
# Nothing is said at all: AMD's network operator mounts the configuration of the VFs and the manifests of the shared RDMA plugin theirs;
# those of GPUs mount neither.
if [ -d /etc/pcidp ] || [ -d /k8s-rdma-shared-dev-plugin ]; then
	exec tandem-rdma
fi
exec tandem-gpu
