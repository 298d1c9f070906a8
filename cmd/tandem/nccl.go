package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// ofContainer stands for the devices of the container that the command runs in.
const ofContainer = "container"

// writeNCCL writes a topology file with these devices, or all of the matrix.
func writeNCCL(w io.Writer, m *matrix, n *node, from *source, only []string) error {
	functions, err := n.functions(m, from, only)
	if err != nil {
		return err
	}
	return nccl.Write(w, n.tree, functions)
}

func (n *node) functions(m *matrix, from *source, only []string) (functions []topology.Address, err error) {
	switch {
	case len(only) == 0:
		for _, g := range m.GPUs {
			functions = append(functions, g.Address)
		}
		for _, nic := range m.NICs {
			functions = append(functions, nic.Address)
		}
	case slices.Equal(only, []string{ofContainer}):
		c := &container{environment: os.Environ(), sysfsRoot: from.sysfsRoot, devRoot: "/dev", procRoot: "/proc"}
		return c.functions(n)
	default:
		for _, text := range only {
			address, err := topology.ParseAddress(text)
			if err != nil {
				return nil, usage("--devices: %w", err)
			}
			functions = append(functions, address)
		}
	}
	return functions, nil
}

// functions are those of the container's GPUs and VFs, found as verify finds them.
func (c *container) functions(n *node) (functions []topology.Address, err error) {
	var found verification
	if err := c.find(n.sys, n.tree, &found); err != nil {
		return nil, err
	}
	if len(found.Failures) > 0 {
		return nil, fmt.Errorf("find the container's devices: %s", strings.Join(found.Failures, "; "))
	}
	for _, g := range found.GPUs {
		functions = append(functions, g.Address)
	}
	for _, vf := range found.VFs {
		functions = append(functions, vf.Address)
	}
	if len(functions) == 0 {
		return nil, fmt.Errorf("find the container's devices: it has none; tandem verify says what is looked at")
	}
	return functions, nil
}
