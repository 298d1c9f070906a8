// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

func newExplain() *cobra.Command {
	var runDir, container string
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "explain [[NAMESPACE/]POD]",
		Short: "Tell why a pod's containers got their devices",
		Long: `Ask the running plugins over their socket what they decided for a pod: what the kubelet asked, in which order, what was
known of the container and by which source, what was chosen and planned, and what each switch had free at that time and
would have given alone. Of a container whose pairs are not all on one switch, or that was refused for that, it then says who
has the VFs beside its GPUs now, and what to do. Without a pod, list all decisions that are known. Those of containers that live are kept when the plugin
that serves is replaced; of the others the last ones are kept while it runs. It needs the rights of the plugins, root's.`,
		Example: `  tandem explain
  tandem explain train-0
  tandem explain team/train-0 --container worker -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && container != "" {
				return usage("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			show := coordinator.List
			var namespace, pod string
			if len(args) == 1 {
				show = func(decisions []coordinator.Decision) []byte {
					return coordinator.Explanation(decisions, coordinator.Now(cmd.Context(), runDir))
				}
				var err error
				if namespace, pod, err = splitPod(args[0]); err != nil {
					return err
				}
			}
			decisions, err := coordinator.AskDecisions(cmd.Context(), runDir, namespace, pod, container)
			if err != nil {
				return err
			}
			all := coordinator.Decisions{Decisions: decisions}
			return format.write(cmd.OutOrStdout(), all, func() []byte { return show(decisions) })
		},
	}
	cmd.ValidArgsFunction = first(func(cmd *cobra.Command, _ string) ([]string, error) {
		return coordinator.Pods(cmd.Context(), runDir)
	})
	cmd.Flags().StringVarP(&container, "container", "c", "", "one container of the pod; all without it")
	registerRunDir(cmd.Flags(), &runDir)
	format.register(cmd)
	return cmd
}

// splitPod parses [NAMESPACE/]POD; the namespace may be "".
func splitPod(name string) (namespace, pod string, err error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		namespace, pod = "", name
	}
	if pod == "" || strings.Contains(pod, "/") {
		return "", "", usage("pod %q: want [NAMESPACE/]POD", name)
	}
	return namespace, pod, nil
}
