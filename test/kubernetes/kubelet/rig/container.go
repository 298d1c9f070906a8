// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// vfEnv is the SR-IOV plugin's variable with a container's VFs: the resource name in upper case, with dots
// and slashes replaced.
var vfEnv = "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(VF))

// visibleGPUs returns the GPUs in a container, in their order there: for AMD the order of render nodes among
// the device nodes, for NVIDIA the order of addresses, regardless of the order in NVIDIA_VISIBLE_DEVICES.
func (r *Rig) visibleGPUs(response node.Response) ([]machine.Device, error) {
	var seen []string
	for _, file := range response.DeviceNodes {
		if name := path.Base(file); path.Dir(file) == "/dev/dri" && strings.HasPrefix(name, "renderD") {
			seen = append(seen, name)
		}
	}
	if r.GPU == NVIDIA {
		seen = strings.FieldsFunc(response.Env["NVIDIA_VISIBLE_DEVICES"], func(r rune) bool { return r == ',' })
	}
	var gpus []machine.Device
	for _, name := range seen {
		gpu, ok := r.Seen[name]
		if !ok {
			return nil, fmt.Errorf("container got %s, which is no GPU of the machine", name)
		}
		gpus = append(gpus, gpu)
	}
	if r.GPU == NVIDIA {
		slices.SortFunc(gpus, func(a, b machine.Device) int { return a.Address.Compare(b.Address) })
	}
	return gpus, nil
}

// visibleVFs returns the VFs in a container, in the order of its environment.
func visibleVFs(response node.Response) ([]machine.Device, error) {
	list := response.Env[vfEnv]
	if list == "" {
		return nil, nil
	}
	var vfs []machine.Device
	for id := range strings.SplitSeq(list, ",") {
		address, err := topology.ParseAddress(id)
		if err != nil {
			return nil, fmt.Errorf("container got %s=%s: %w", vfEnv, list, err)
		}
		vfs = append(vfs, machine.Device{ID: id, Address: address})
	}
	return vfs, nil
}
