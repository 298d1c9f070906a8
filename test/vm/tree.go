package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// compareTree adds a row on whether the machine's GPUs and NICs are where those of the recorded server are: at the same
// addresses, below the same bridges, on the same NUMA nodes.
func (t *tester) compareTree(ctx context.Context, server string) error {
	start := time.Now()
	text, err := t.node.run(ctx, "tandem record --sysfs-root /run/sysroot")
	if err != nil {
		return err
	}
	here, err := recording.Parse(strings.NewReader(text))
	if err != nil {
		return err
	}
	there, err := machines.Load(server, 0)
	if err != nil {
		return err
	}
	got, err := places(here)
	if err != nil {
		return err
	}
	want, err := places(there)
	if err != nil {
		return err
	}
	r := row{setup: t.node.machine.title(), scenario: "the tree is that of " + server, took: time.Since(start), note: fmt.Sprintf("%d GPUs and NICs", len(got))}
	if !slices.Equal(got, want) {
		r.problem = fmt.Sprintf("there are %s, want %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
	t.add(r)
	return nil
}

// places lists the way to every GPU and every NIC with RDMA.
func places(m *recording.Machine) ([]string, error) {
	tree, err := topology.Read(m.FS())
	if err != nil {
		return nil, err
	}
	var list []string
	for d := range tree.Devices() {
		if d.Class.IsGPU() || len(d.RDMA) > 0 && !d.IsVF() {
			list = append(list, fmt.Sprintf("%s below %v on NUMA node %v", d.Address, d.Bridges(), d.NUMA))
		}
	}
	slices.Sort(list)
	return list, nil
}
