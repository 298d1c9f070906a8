// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
)

func newClusterExplain(o *cluster.Options) *cobra.Command {
	var q cluster.Question
	format := cli.OneOf(cli.AsTable, cli.AsJSON).Judging(explainVerdicts)
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD",
		Short: "Explain the device assignment of a pod's containers",
		Long: `Query Tandem's daemons on the node of a pod for their decisions: the kubelet's calls, the data about the container and its source,
the chosen devices, and the devices that each switch had free at that time. The output is that of "tandem explain" on the node.

For a pod with status TopologyAffinityError the kubelet has called no plugin. The command then compares the pod's requests with the
devices that each NUMA node and each switch has free now, names the pods that hold the other devices, and says whether the empty node
admits the pod. What was free at the rejection is in no record; the output tells which pods have held their devices since before it.`,
		Example: `  kubectl tandem explain train-0
  kubectl tandem explain team/train-0 --container worker -o json
  kubectl tandem explain team/train-0 --node gpu-17`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.Namespace, q.Pod, err = splitPod(args[0]); err != nil {
				return err
			}
			c, err := connect(o)
			if err != nil {
				return err
			}
			q.Format = format.Format
			printed, err := c.Explain(cmd.Context(), q)
			if err != nil {
				return err
			}
			return format.Show(cmd, printed)
		},
		ValidArgsFunction: cli.First(func(cmd *cobra.Command, typed string) ([]string, error) {
			c, err := connect(o)
			if err != nil {
				return nil, err
			}
			namespace, _, named := strings.Cut(typed, "/")
			if !named {
				return c.Pods(cmd.Context(), "")
			}
			pods, err := c.Pods(cmd.Context(), namespace)
			for i, pod := range pods {
				pods[i] = namespace + "/" + pod
			}
			return pods, err
		}),
	}
	cmd.Flags().StringVarP(&q.Container, "container", "c", "",
		"show only this container of the pod (default all containers)")
	cmd.Flags().BoolVar(&q.All, "all", false,
		"also show the decisions for deleted pods of the same name, at the end")
	cmd.Flags().StringVar(&q.Node, "node", "", "node of a deleted pod")
	cli.Complete(cmd, "node", nodes(o))
	format.Register(cmd)
	return cmd
}
