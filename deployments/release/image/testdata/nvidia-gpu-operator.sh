#!/bin/sh
# What the GPU operator v26.7.0 has the plugin's container do, in other words: wait for the driver's validation, read where the driver
# is, look for modules, become the plugin (assets/state-device-plugin/0400_configmap.yaml in NVIDIA/gpu-operator).
ready=/run/nvidia/validations/driver-ready
until [ -f "$ready" ]; do
	sleep 5
done
set -o allexport
cat "$ready"
. "$ready"
: >feature-flags.env
if lsmod | grep -q "^gdrdrv "; then
	echo GDRCOPY_ENABLED=true >>feature-flags.env
fi
if [ -s feature-flags.env ]; then
	. ./feature-flags.env
fi
exec nvidia-device-plugin
