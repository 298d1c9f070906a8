// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
)

const planExitCodes = "  3  the kubelet would reject the request: the note names the reason\n"

func newPlan() *cobra.Command {
	var from machine.Source
	var q machine.Question
	var stock bool
	var width int
	format := cli.OneOf(cli.AsTable, cli.AsJSON, asSVG)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show the GPUs and VFs that a container would get",
		Long: `Show the GPUs and VFs that the plugins would prefer for a container with this request, on the NUMA nodes that the kubelet's
Topology Manager would select with the policy restricted. Without --config, the VFs are the VFs of all NICs with RDMA, and a NIC
without VFs counts as a VF. With --config, the VFs are those of all resources in the config.json of the SR-IOV network device plugin.
Whether a pool without excludeTopology has NUMA hints follows from the machine, as on a node; without --config the VFs are such a pool.

--stock shows what the container typically gets from the stock plugins instead: GPUs by the vendor's policy, VFs at random.

-o svg draws the machine; the two devices of a pair have the same colour.`,
		Example: `  tandem plan --gpus 2 --vfs 2
  tandem plan --gpus 4 --vfs 4 --used 0000:11:00.0,0000:0c:00.1 --config /etc/pcidp/config.json
  tandem plan --gpus 8 --vfs 8 --machine test/machines/oci-mi300x-derived.txt -o json
  tandem plan --gpus 4 --vfs 4 --machine test/machines/oci-mi300x-derived.txt -o svg >plan.svg
  tandem plan --gpus 2 --vfs 2 --machine test/machines/oci-mi300x-derived.txt --stock`,
		Args:        cli.NoArguments,
		Annotations: map[string]string{cli.MoreExitCodes: planExitCodes},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSource(cmd.Flags()); err != nil {
				return err
			}
			if q.GPUs == 0 && q.VFs == 0 {
				return cli.NewUsageError("want a number of GPUs, VFs or both: --gpus 1 --vfs 1")
			}
			if width < picture.Narrow {
				return cli.NewUsageError("--width %d: want at least %d pixels", width, picture.Narrow)
			}
			n, err := machine.Read(&from)
			if err != nil {
				return err
			}
			ask := q.Answer
			if stock {
				ask = q.Stock
			}
			answer, notes, err := ask(n)
			if err != nil {
				return err
			}
			for _, note := range slices.Concat(n.Notes, notes) {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			if format.Format == asSVG {
				drawn := answer.Picture(from.Title(), n)
				drawn.Width = width
				_, err = cmd.OutOrStdout().Write(drawn.SVG())
			} else {
				err = format.Write(cmd, answer, answer.Table)
			}
			if err == nil && answer.IsRejected() {
				err = cli.FoundError(cli.ExitFound)
			}
			return err
		},
	}
	from.RegisterFlags(cmd)
	cmd.Flags().UintVar(&q.GPUs, "gpus", 0,
		"number of requested GPUs, or of partitions if the GPUs are partitioned")
	cmd.Flags().UintVar(&q.VFs, "vfs", 0, "number of requested VFs")
	cmd.Flags().StringSliceVar(&q.Used, "used", nil,
		"devices in use: PCI addresses, as in sysfs or lspci, or IDs of partitions")
	cmd.Flags().StringVar(&q.Config, "config", "",
		"config.json of the SR-IOV network device plugin, to select VFs")
	cmd.Flags().BoolVar(&stock, "stock", false, "choose like the stock plugins")
	cmd.Flags().IntVar(&width, "width", picture.Wide,
		"width of the picture of -o svg in pixels, if the switches fit")
	format.Register(cmd)
	return cmd
}
