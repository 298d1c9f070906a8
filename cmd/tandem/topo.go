// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/topo"
)

func newTopo() *cobra.Command {
	var from machine.Source
	var runDir string
	var all, verbose, nearest bool
	var only []string
	var published published
	format := oneOf(asTable, asJSON, asSVG, asHTML, asNCCL, asSlice)
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Show how near GPUs and NICs are to each other",
		Long: `Show the distance of every GPU to every NIC and to every other GPU, in the words of "nvidia-smi topo -m", from sysfs
alone: for AMD and NVIDIA alike, without a vendor's tools or libraries. VFs are where their PF is. How much memory an
NVIDIA GPU has is in no file: tandem-gpu tells root, where it runs.

With -o nccl it writes a topology file for NCCL and RCCL (NCCL_TOPO_FILE), of the whole node or of a container's devices. The other way
round, --topology-file says which devices share a switch where sysfs does not: in guests with a flat PCI tree.

With -o resourceslices it writes the ResourceSlices that tandem-dra would publish of the node. How NVIDIA's GPUs are divided is in no file,
so there they are whole.`,
		Example: `  tandem topo
  sudo tandem topo -v
  tandem topo --nearest
  tandem topo -o json
  tandem topo -o html >node.html
  tandem topo -o nccl --devices container >/tmp/topo.xml
  tandem topo -o resourceslices --config /etc/pcidp/config.json
  tandem topo --topology-file /opt/microsoft/ndv5-topo.xml
  tandem topo --machine test/machines/oci-mi300x-derived.txt`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSource(cmd.Flags()); err != nil {
				return err
			}
			if len(only) > 0 && format.format != asNCCL {
				return usage("--devices belongs to -o nccl")
			}
			if err := published.check(cmd.Flags(), format.format); err != nil {
				return err
			}
			if nearest && (verbose || format.format != asTable) {
				return usage("--nearest excludes --verbose and other outputs than %s", asTable)
			}
			n, err := machine.Read(&from)
			if err != nil {
				return err
			}
			if from.IsHere() || cmd.Flags().Changed("run-dir") {
				n.AskVRAM(cmd.Context(), runDir)
			}
			for _, note := range n.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			if format.format == asSlice {
				return published.write(cmd.OutOrStdout(), cmd.ErrOrStderr(), n, &from)
			}
			m := topo.NewMatrix(n, all)
			if format.format == asNCCL {
				return writeNCCL(cmd.OutOrStdout(), m, n, &from, only)
			}
			if nearest {
				_, err := cmd.OutOrStdout().Write(m.Nearest())
				return err
			}
			if verbose {
				m.ReadVerbose(n)
			}
			if format.draws() {
				return format.draw(cmd.OutOrStdout(), m.Picture(from.Title(), n.Tree))
			}
			return format.write(cmd.OutOrStdout(), m, m.Table)
		},
	}
	registerSource(cmd, &from)
	format.register(cmd)
	registerRunDir(cmd.Flags(), &runDir)
	cmd.Flags().StringSliceVar(&only, "devices", nil,
		`with -o nccl: addresses of the GPUs and VFs to write, or "container" for those of the container that this runs in`)
	published.register(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "show NICs without RDMA too")
	cmd.Flags().BoolVar(&nearest, "nearest", false, "show a line for each GPU: the NICs that are nearest to it")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"show PCIe links, IOMMU groups, RDMA ports, and what ACS does to same-switch pairs (root alone "+
			"can read that)")
	return cmd
}
