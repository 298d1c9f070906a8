package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// findDevices prints the place of every display device and of every NIC, and its NUMA node.
const findDevices = `for device in /sys/bus/pci/drivers/virtio-pci/0*/drm /sys/bus/pci/drivers/igb/0*/net; do
	function=$(readlink -f ${device%/*})
	echo $function $(cat $function/numa_node)
done`

// compareTree adds a row on whether the machine's GPUs and NICs are where those of the recorded server are: at the same
// addresses, below the same bridges, on the same NUMA nodes.
func (t *tester) compareTree(ctx context.Context, server string) error {
	start := time.Now()
	output, err := t.node.run(ctx, findDevices)
	if err != nil {
		return err
	}
	want, err := places(server)
	if err != nil {
		return err
	}
	got := strings.Split(strings.TrimSpace(output), "\n")
	slices.Sort(got)
	r := row{setup: t.node.title(), scenario: "the tree is that of " + server, took: time.Since(start), note: fmt.Sprintf("%d GPUs and NICs", len(got))}
	if !slices.Equal(got, want) {
		r.problem = fmt.Sprintf("there are %s, want %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
	t.add(r)
	return nil
}

// places lists the same of a recorded server's GPUs and NICs.
func places(server string) ([]string, error) {
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
