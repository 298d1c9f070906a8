// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// ofContainer selects the devices of the container in which the command runs.
const ofContainer = "container"

// writeNCCL writes a topology file with these devices, or all of the matrix.
func writeNCCL(w io.Writer, m *machine.Matrix, n *machine.Node, from *machine.Source, only []string) error {
	functions, err := functions(n, m, from, only)
	if err != nil {
		return err
	}
	return nccl.Write(w, n.Tree, functions)
}

func functions(
	n *machine.Node, m *machine.Matrix, from *machine.Source, only []string,
) (functions []topology.Address, err error) {
	switch {
	case len(only) == 0:
		for _, g := range m.GPUs {
			functions = append(functions, g.Address)
		}
		for _, nic := range m.NICs {
			functions = append(functions, nic.Address)
		}
	case slices.Equal(only, []string{ofContainer}):
		c := &verify.Container{
			Environment: os.Environ(), SysfsRoot: from.SysfsRoot, DevRoot: "/dev", ProcRoot: "/proc",
		}
		return c.Functions(n.Sys, n.Tree)
	default:
		for _, text := range only {
			address, err := topology.ParseAddress(text)
			if err != nil {
				return nil, cli.Usage("--devices: %w", err)
			}
			functions = append(functions, address)
		}
	}
	return functions, nil
}
