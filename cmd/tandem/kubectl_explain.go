// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
)

func newClusterExplain(o *cluster.Options) *cobra.Command {
	var q cluster.Question
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD",
		Short: "Tell why a pod's containers got their devices",
		Long: `Find the node of a pod, and ask Tandem's daemons there what they decided for it: what the kubelet asked, what was known of the
container and by which source, the choice, and what each switch had free at that time. It prints what "tandem explain" prints on the node.`,
		Example: `  kubectl tandem explain train-0
  kubectl tandem explain team/train-0 --container worker -o json
  kubectl tandem explain team/train-0 --node gpu-17`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one pod: [NAMESPACE/]POD")
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
			q.Format = format.format
			printed, err := c.Explain(cmd.Context(), q)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(printed)
			return err
		},
		ValidArgsFunction: first(func(cmd *cobra.Command, typed string) ([]string, error) {
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
	cmd.Flags().StringVarP(&q.Container, "container", "c", "", "one container of the pod; all without it")
	cmd.Flags().StringVar(&q.Node, "node", "", "ask this node, for a pod that has gone from it")
	complete(cmd, "node", nodes(o))
	format.register(cmd)
	return cmd
}
