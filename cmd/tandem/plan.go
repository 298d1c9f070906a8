package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/topology"
)

func newPlan() *cobra.Command {
	var from source
	var q question
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Tell which GPUs and VFs a container would get",
		Long: `Tell which GPUs and VFs the plugins would prefer for a container that asks for so many, on the NUMA nodes that the
kubelet's Topology Manager would give it under policy restricted. Without --config the VFs are those of all NICs with
RDMA, and a NIC that has no VF counts itself; with it they are what the config.json of the SR-IOV network device plugin
selects, of all its resources together.`,
		Example: `  tandem plan --gpus 2 --vfs 2
  tandem plan --gpus 4 --vfs 4 --used 0000:11:00.0,0000:0c:00.1 --config /etc/pcidp/config.json
  tandem plan --gpus 8 --vfs 8 --machine test/machines/oci-mi300x-derived.txt -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := from.check(cmd.Flags()); err != nil {
				return err
			}
			if q.gpus == 0 && q.vfs == 0 {
				return usage("want a number of GPUs, VFs or both: --gpus 1 --vfs 1")
			}
			answer, notes, err := q.answer(&from)
			if err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			if format.format == asJSON {
				return writeJSON(cmd.OutOrStdout(), answer)
			}
			return answer.write(cmd.OutOrStdout())
		},
	}
	from.register(cmd.Flags())
	cmd.Flags().UintVar(&q.gpus, "gpus", 0, "GPUs wanted; partitions where GPUs are partitioned")
	cmd.Flags().UintVar(&q.vfs, "vfs", 0, "VFs wanted")
	cmd.Flags().StringSliceVar(&q.used, "used", nil, "devices that are taken: addresses, as the kernel or lspci writes them, or IDs of partitions")
	cmd.Flags().StringVar(&q.config, "config", "", "config.json of the SR-IOV network device plugin, to select VFs")
	cmd.Flags().VarP(&format, "output", "o", format.usage())
	return cmd
}

// plan is the answer, as JSON has it. The i-th GPU and the i-th VF are a pair.
type plan struct {
	GPUs   []string    `json:"gpus"` // device IDs
	VFs    []string    `json:"vfs"`
	Pairs  []pairEntry `json:"pairs"`
	Nodes  []int       `json:"nodes"`          // NUMA nodes that the kubelet would choose; none where it has no choice
	Note   string      `json:"note,omitempty"` // where the kubelet would refuse the container
	Reason string      `json:"reason"`
}

type pairEntry struct {
	GPU      string         `json:"gpu"`
	VF       string         `json:"vf"`
	Distance topology.Level `json:"distance"`
	Bridges  int            `json:"bridges"`
}

func (p *plan) write(out io.Writer) error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	switch {
	case len(p.Pairs) > 0:
		fmt.Fprintln(w, "GPU\tVF\tDISTANCE")
		for _, pair := range p.Pairs {
			fmt.Fprintf(w, "%s\t%s\t%s\n", pair.GPU, pair.VF, pair.Distance)
		}
	case len(p.GPUs) > 0:
		fmt.Fprintf(w, "GPU\n%s\n", strings.Join(p.GPUs, "\n"))
	default:
		fmt.Fprintf(w, "VF\n%s\n", strings.Join(p.VFs, "\n"))
	}
	_ = w.Flush() // to memory
	fmt.Fprintln(&text)
	for _, node := range p.Nodes {
		fmt.Fprintf(&text, "NUMA node %d\n", node)
	}
	if p.Note != "" {
		fmt.Fprintf(&text, "note: %s\n", p.Note)
	}
	fmt.Fprintln(&text, p.Reason)
	_, err := out.Write(text.Bytes())
	return err
}
