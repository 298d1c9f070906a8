// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

func newTopo() *cobra.Command {
	var from machine.Source
	var runDir string
	var all, verbose bool
	var only []string
	var published published
	format := cli.OneOf(cli.AsTable, cli.AsJSON, asSVG, asNCCL, asSlice)
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Show the distances between GPUs and NICs",
		Long: `Show the distance of every GPU to every NIC and to every other GPU, in the terms of "nvidia-smi topo -m". The data comes from
sysfs only, for AMD and NVIDIA, without a vendor's tools or libraries. VFs have the location of their PF. Sysfs does not contain
the memory size of NVIDIA GPUs: a running tandem-gpu provides the size to root.

-o nccl writes a topology file for NCCL and RCCL (NCCL_TOPO_FILE), for the whole node or for a container's devices. Conversely,
--topology-file reads the PCIe switches from such a file, for guests with a flat PCI tree in sysfs.

-o resourceslices writes the ResourceSlices that tandem-dra would publish for the node. Sysfs does not contain the MIG devices of
NVIDIA GPUs, so that these GPUs are shown as whole GPUs.`,
		Example: `  tandem topo
  sudo tandem topo -v
  tandem topo -o json
  tandem topo -o svg >node.svg
  tandem topo -o nccl --devices container >/tmp/topo.xml
  tandem topo -o resourceslices --config /etc/pcidp/config.json
  tandem topo --topology-file /opt/microsoft/ndv5-topo.xml
  tandem topo --machine test/machines/oci-mi300x-derived.txt`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSource(cmd.Flags()); err != nil {
				return err
			}
			if len(only) > 0 && format.Format != asNCCL {
				return cli.NewUsageError("--devices belongs to -o nccl")
			}
			if err := published.checkFlags(cmd.Flags(), format.Format); err != nil {
				return err
			}
			n, err := machine.Read(&from)
			if err != nil {
				return err
			}
			if from.IsHere() || cmd.Flags().Changed("run-dir") {
				n.AskVRAM(func() (*api.StatusResponse, error) { return coordinator.AskStatus(cmd.Context(), runDir) })
			}
			for _, note := range n.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			if format.Format == asSlice {
				return published.writeSlices(cmd.OutOrStdout(), cmd.ErrOrStderr(), n, &from)
			}
			m := machine.NewMatrix(n, all)
			if format.Format == asNCCL {
				return writeNCCL(cmd.OutOrStdout(), m, n, &from, only)
			}
			if verbose {
				m.ReadVerbose(n)
			}
			if format.Format == asSVG {
				_, err := cmd.OutOrStdout().Write(m.Picture(from.Title(), n.Tree).SVG())
				return err
			}
			return format.Write(cmd, m, m.Table)
		},
	}
	from.RegisterFlags(cmd)
	format.Register(cmd)
	cli.RegisterRunDir(cmd.Flags(), &runDir)
	cmd.Flags().StringSliceVar(&only, "devices", nil,
		`with -o nccl: addresses of the GPUs and VFs to write, or "container" for the devices of the current container`)
	published.registerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "also show NICs without RDMA")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"also show PCIe links, IOMMU groups, RDMA ports, and the effect of ACS on same-switch pairs (requires "+
			"root)")
	return cmd
}

// ofContainer selects the devices of the container in which the command runs.
const ofContainer = "container"

// writeNCCL writes a topology file with these devices, or all of the matrix.
func writeNCCL(w io.Writer, m *machine.Matrix, n *machine.Node, from *machine.Source, only []string) error {
	var functions []topology.Address
	var err error
	switch {
	case len(only) == 0:
		for _, g := range m.GPUs {
			functions = append(functions, g.Address)
		}
		for _, nic := range m.NICs {
			functions = append(functions, nic.Address)
		}
	case slices.Equal(only, []string{ofContainer}):
		v := &verify.Check{
			Environment: os.Environ(), SysfsRoot: from.SysfsRoot, DevRoot: "/dev", ProcRoot: "/proc",
		}
		functions, err = v.Functions(n.Sys, n.Tree)
		if err != nil {
			return err
		}
	default:
		for _, text := range only {
			address, err := topology.ParseAddress(text)
			if err != nil {
				return cli.NewUsageError("--devices: %w", err)
			}
			functions = append(functions, address)
		}
	}
	return nccl.Write(w, n.Tree, functions)
}

// published are the flags of the output as ResourceSlices.
type published struct {
	config     string
	noCounters bool
	perPF      int
}

func (p *published) registerFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.config, "config", "",
		"with -o resourceslices: config.json of the SR-IOV network device plugin, to select VFs "+
			"(default all VFs of NICs with RDMA)")
	flags.BoolVar(&p.noCounters, "no-counters", false,
		"with -o resourceslices: omit shared counters, for Kubernetes 1.34 and 1.35 or without the feature gate "+
			"DRAPartitionableDevices")
	flags.IntVar(&p.perPF, "vfs-per-pf", pool.DefaultVFsPerPF,
		"with -o resourceslices: maximum number of VFs of a PF, 0 for all")
}

// checkFlags rejects the flags for other formats, and invalid values.
func (p *published) checkFlags(flags *pflag.FlagSet, format string) error {
	for _, name := range []string{"config", "no-counters", "vfs-per-pf"} {
		if flags.Changed(name) && format != asSlice {
			return cli.NewUsageError("--%s belongs to -o %s", name, asSlice)
		}
	}
	if p.perPF < 0 {
		return cli.NewUsageError("--vfs-per-pf %d: want 0, for all, or more", p.perPF)
	}
	return nil
}

// writeSlices writes the ResourceSlices of a machine as YAML, and notes on the omitted parts.
func (p *published) writeSlices(out, notes io.Writer, n *machine.Node, from *machine.Source) error {
	inventory, err := n.Inventory(p.config)
	if err != nil {
		return err
	}
	built := pool.Build(inventory, pool.Options{
		Counters: !p.noCounters, Taints: !p.noCounters, VFsPerPF: p.perPF,
	})
	for _, note := range built.Notes {
		fmt.Fprintln(notes, "note:", note)
	}
	for i, object := range built.ResourceSlices(from.Title()) {
		text, err := json.Marshal(object)
		if err == nil { // names of devices may contain characters that neither YAML nor a terminal allows unescaped
			text, err = yaml.JSONToYAML([]byte(cli.PrintableLines(string(text))))
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", object.Name, err)
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}
