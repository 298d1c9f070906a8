// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// vfEnv is the variable in which the SR-IOV plugin lists a container's VFs: the resource name in upper case,
// dots and slashes replaced.
var vfEnv = "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(VF))

// visibleGPUs are the GPUs that a container finds, in their order there: AMD's in that of the render nodes
// among its device nodes, NVIDIA's in that of their addresses, whatever the order in which its runtime is
// told of them.
func (m *Machine) visibleGPUs(response node.Response) ([]Device, error) {
	told := renderNodes(response)
	if m.GPU == NVIDIA {
		told = uuids(response)
	}
	var gpus []Device
	for _, name := range told {
		gpu, ok := m.gpus[name]
		if !ok {
			return nil, fmt.Errorf("container got %s, which is no GPU of the machine", name)
		}
		gpus = append(gpus, gpu)
	}
	if m.GPU == NVIDIA {
		slices.SortFunc(gpus, func(a, b Device) int { return a.Address.Compare(b.Address) })
	}
	return gpus, nil
}

// visibleVFs are the VFs that a container finds, in the order of its environment.
func visibleVFs(response node.Response) ([]Device, error) {
	list := response.Env[vfEnv]
	if list == "" {
		return nil, nil
	}
	var vfs []Device
	for id := range strings.SplitSeq(list, ",") {
		address, err := topology.ParseAddress(id)
		if err != nil {
			return nil, fmt.Errorf("container got %s=%s: %w", vfEnv, list, err)
		}
		vfs = append(vfs, Device{ID: id, Address: address})
	}
	return vfs, nil
}
