// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// findDevices prints the place of every display device and of every NIC, and its NUMA node.
const findDevices = `for device in /sys/bus/pci/drivers/virtio-pci/0*/drm /sys/bus/pci/drivers/igb/0*/net; do
	function=$(readlink -f ${device%/*})
	echo $function $(cat $function/numa_node)
done`

// Places returns the paths below /sys of every GPU and NIC of the machine, with the bridges above it, and its
// NUMA node, sorted.
func (v *VM) Places(ctx context.Context) ([]string, error) {
	output, err := v.Run(ctx, findDevices)
	if err != nil {
		return nil, err
	}
	list := strings.Split(strings.TrimSpace(output), "\n")
	slices.Sort(list)
	return list, nil
}

// ServerPlaces returns the same for a server of test/machines.
func ServerPlaces(server string) ([]string, error) {
	machine, err := machines.Load(server, 0)
	if err != nil {
		return nil, err
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		return nil, err
	}
	var list []string
	for d := range tree.Devices() {
		if !d.Class.IsGPU() && len(d.RDMA) == 0 {
			continue
		}
		elements := []string{"/sys/devices", d.RootComplex()}
		for _, bridge := range d.Bridges() {
			elements = append(elements, bridge.String())
		}
		list = append(list, fmt.Sprintf("%s %v", path.Join(append(elements, d.Address.String())...), d.NUMA))
	}
	slices.Sort(list)
	return list, nil
}
