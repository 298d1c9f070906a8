// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

func newTopo() *cobra.Command {
	var from machine.Source
	var runDir string
	var all, verbose, nearest bool
	var only []string
	var published published
	format := cli.OneOf(cli.AsTable, cli.AsJSON, asSVG, asHTML, asNCCL, asSlice)
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
  tandem topo --nearest
  tandem topo -o json
  tandem topo -o html >node.html
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
				return cli.Usage("--devices belongs to -o nccl")
			}
			if err := published.check(cmd.Flags(), format.Format); err != nil {
				return err
			}
			if nearest && (verbose || format.Format != cli.AsTable) {
				return cli.Usage("--nearest excludes --verbose and other outputs than %s", cli.AsTable)
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
			if format.Format == asSlice {
				return published.write(cmd.OutOrStdout(), cmd.ErrOrStderr(), n, &from)
			}
			m := machine.NewMatrix(n, all)
			if format.Format == asNCCL {
				return writeNCCL(cmd.OutOrStdout(), m, n, &from, only)
			}
			if nearest {
				return format.Show(cmd, m.Nearest())
			}
			if verbose {
				m.ReadVerbose(n)
			}
			if isPicture(format.Format) {
				return draw(format.Format, cmd.OutOrStdout(), m.Picture(from.Title(), n.Tree))
			}
			return format.Write(cmd, m, m.Table)
		},
	}
	registerSource(cmd, &from)
	format.Register(cmd)
	registerRunDir(cmd.Flags(), &runDir)
	cmd.Flags().StringSliceVar(&only, "devices", nil,
		`with -o nccl: addresses of the GPUs and VFs to write, or "container" for the devices of the current container`)
	published.register(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "also show NICs without RDMA")
	cmd.Flags().BoolVar(&nearest, "nearest", false, "show only the nearest NICs of each GPU")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"also show PCIe links, IOMMU groups, RDMA ports, and the effect of ACS on same-switch pairs (requires "+
			"root)")
	plainflag.Output.PutRest(cmd.Flags())
	return cmd
}
