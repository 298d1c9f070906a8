// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
)

func newExplain() *cobra.Command {
	var q coordinator.PodQuestion
	var created string
	format := cli.OneOf(cli.AsTable, cli.AsJSON).WithVerdicts(explainVerdicts)
	cmd := &cobra.Command{
		Use:   "explain [[NAMESPACE/]POD]",
		Short: "Explain the device assignment of a pod's containers",
		Long: `Query the plugins' decisions for a pod over their socket: the kubelet's calls in order, the data about the container and its
source, the chosen and the planned devices, and the devices that each switch had free at that time, with the pairs that the switch
alone allowed. The verdict on each container comes first. For a container with a pair on different switches, and for a container that was rejected for this reason, the output
also names the current holders of the VFs next to its GPUs, and a remedy. Without a pod, list all known decisions. Decisions for
running containers survive a restart of the serving plugin; for ended containers the latest decisions are kept until the restart.
Decisions for deleted pods of the same name are shown with --all.

For a pod with status TopologyAffinityError the kubelet has called no plugin. The command then compares the pod's requests with the
devices that each NUMA node and each switch has free now, and names the pods that hold the other devices, and which of them did so
before the rejection. The kubelet lists such pods with Kubernetes 1.37 and later; "kubectl tandem explain" works with any version.
The command requires root.`,
		Example: `  tandem explain
  tandem explain train-0
  tandem explain team/train-0 --container worker -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && q.Container != "" {
				return cli.NewUsageError("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if created != "" {
				if q.Present.Created, err = time.Parse(time.RFC3339, created); err != nil {
					return cli.NewUsageError("--created %q: want a time, as in 2026-01-02T15:04:05Z", created)
				}
			}
			if len(args) == 0 {
				var known coordinator.PodExplanation
				if known.Decisions, err = coordinator.AskDecisions(cmd.Context(), q.RunDir, "", "", ""); err != nil {
					return err
				}
				return format.Write(cmd, known, func() []byte { return coordinator.ListDecisions(known.Decisions) })
			}
			if q.Namespace, q.Pod, err = splitPod(args[0]); err != nil {
				return err
			}
			known, err := q.Ask(cmd.Context())
			if err != nil {
				return err
			}
			return format.Write(cmd, known, func() []byte { return q.Text(cmd.Context(), known) })
		},
	}
	cmd.ValidArgsFunction = cli.CompleteFirst(func(cmd *cobra.Command, _ string) ([]string, error) {
		return coordinator.ListPods(cmd.Context(), q.RunDir)
	})
	cmd.Flags().StringVarP(&q.Container, "container", "c", "",
		"show only this container of the pod (default all containers)")
	cmd.Flags().BoolVar(&q.All, "all", false,
		"also show the decisions for deleted pods of the same name, at the end")
	cmd.Flags().StringVar(&q.Present.UID, "uid", "", "UID of the pod (metadata.uid): decisions with another "+
		"UID are of deleted pods")
	cmd.Flags().StringVar(&created, "created", "", "creation time of the pod (creationTimestamp): earlier "+
		"decisions without a UID are of deleted pods (default recognized by repeated allocations)")
	registerRunDir(cmd.Flags(), &q.RunDir)
	registerKubeletDir(cmd.Flags(), &q.KubeletDir)
	format.Register(cmd)
	return cmd
}

// splitPod parses [NAMESPACE/]POD; the namespace may be "".
func splitPod(name string) (namespace, pod string, err error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		namespace, pod = "", name
	}
	if pod == "" || strings.Contains(pod, "/") {
		return "", "", cli.NewUsageError("pod %q: want [NAMESPACE/]POD", name)
	}
	return namespace, pod, nil
}
