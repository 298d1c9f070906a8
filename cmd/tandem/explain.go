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
		Use:   "explain [NAMESPACE/]POD",
		Short: "Tell why a pod's containers got their devices",
		Long: `Ask the running plugins over their socket what they decided for a pod: what the kubelet asked, in which order, what was
known of the container and by which source, what was chosen and planned, and what each switch had free at that time and
would have given alone. The last decisions are kept in memory, and lost when the plugin that serves ends. It needs the rights of the plugins, root's.`,
		Example: `  tandem explain train-0
  tandem explain team/train-0 --container worker -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, pod, ok := strings.Cut(args[0], "/")
			if !ok {
				namespace, pod = "", args[0]
			}
			if pod == "" || strings.Contains(pod, "/") {
				return usage("pod %q: want [NAMESPACE/]POD", args[0])
			}
			decisions, err := coordinator.AskDecisions(cmd.Context(), runDir, namespace, pod, container)
			if err != nil {
				return err
			}
			return format.write(cmd.OutOrStdout(), decisions,
				func() []byte { return coordinator.Explanation(decisions) })
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "one container of the pod; all without it")
	registerRunDir(cmd.Flags(), &runDir)
	cmd.Flags().VarP(&format, "output", "o", format.usage())
	return cmd
}
