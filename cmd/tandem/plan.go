// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/plan"
)

func newPlan() *cobra.Command {
	var from machine.Source
	var q plan.Question
	format := oneOf(asTable, asJSON, asSVG, asHTML)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Tell which GPUs and VFs a container would get",
		Long: `Tell which GPUs and VFs the plugins would prefer for a container that asks for so many, on the NUMA nodes that the
kubelet's Topology Manager would give it under policy restricted. Without --config the VFs are those of all NICs with
RDMA, and a NIC that has no VF counts itself; with it they are what the config.json of the SR-IOV network device plugin
selects, of all its resources together.

With -o svg or html it draws the machine; the two devices of a pair have one colour.`,
		Example: `  tandem plan --gpus 2 --vfs 2
  tandem plan --gpus 4 --vfs 4 --used 0000:11:00.0,0000:0c:00.1 --config /etc/pcidp/config.json
  tandem plan --gpus 8 --vfs 8 --machine test/machines/oci-mi300x-derived.txt -o json
  tandem plan --gpus 4 --vfs 4 --machine test/machines/oci-mi300x-derived.txt -o svg >plan.svg`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSource(cmd.Flags()); err != nil {
				return err
			}
			if q.GPUs == 0 && q.VFs == 0 {
				return usage("want a number of GPUs, VFs or both: --gpus 1 --vfs 1")
			}
			n, err := machine.Read(&from)
			if err != nil {
				return err
			}
			answer, notes, err := q.Answer(n, &from)
			if err != nil {
				return err
			}
			for _, note := range slices.Concat(n.Notes, notes) {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			if format.draws() {
				return format.draw(cmd.OutOrStdout(), answer.Picture(from.Title(), n))
			}
			return format.write(cmd.OutOrStdout(), answer, answer.Table)
		},
	}
	registerSource(cmd, &from)
	cmd.Flags().UintVar(&q.GPUs, "gpus", 0, "GPUs wanted; partitions where GPUs are partitioned")
	cmd.Flags().UintVar(&q.VFs, "vfs", 0, "VFs wanted")
	cmd.Flags().StringSliceVar(&q.Used, "used", nil,
		"devices that are taken: addresses, as the kernel or lspci writes them, or IDs of partitions")
	cmd.Flags().StringVar(&q.Config, "config", "",
		"config.json of the SR-IOV network device plugin, to select VFs")
	format.register(cmd)
	return cmd
}
