package rig

import (
	"fmt"
	"path"
	"strings"

	"github.com/tandem-k8s/tandem/test/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// vfEnv is the variable in which the SR-IOV plugin lists a container's VFs: the resource name in upper case, dots and
// slashes replaced.
var vfEnv = "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(VF))

// visibleGPUs are the GPUs that a container finds, in the order of their render nodes among its device nodes.
func (m *Machine) visibleGPUs(response node.Response) ([]Device, error) {
	var gpus []Device
	for _, file := range response.DeviceNodes {
		name := path.Base(file)
		if path.Dir(file) != "/dev/dri" || !strings.HasPrefix(name, "renderD") {
			continue
		}
		gpu, ok := m.gpus[name]
		if !ok {
			return nil, fmt.Errorf("container got %s, which is no GPU of the machine", file)
		}
		gpus = append(gpus, gpu)
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
