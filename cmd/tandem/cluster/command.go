// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
)

// NewCommand returns the command of the kubectl plugin, which queries the nodes of a cluster instead of this
// node.
func NewCommand() *cobra.Command {
	root := cli.CompleteRoot(&cobra.Command{
		Use:   "kubectl-tandem",
		Short: "Query the nodes of a cluster for GPUs and RDMA VFs on the same PCIe switch",
		Long: `Query the nodes of a cluster for GPUs and RDMA VFs on the same PCIe switch. The command runs the program tandem in the pods of
Tandem's daemons, as kubectl exec does, with your own permissions: list DaemonSets, get and list pods, and get and create pods/exec
in the namespace of the daemons. Only pods that a DaemonSet owns and that mount folders of the node are queried; labels alone are not
sufficient. If several namespaces contain such DaemonSets, select one with --tandem-namespace.

kubectl completes the plugin's commands, nodes, pods and flags if kubectl_complete-tandem, a link to the same program, is in PATH.`,
		// The command as users type it.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tandem"},
	})
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes
	o := options{}
	flags := root.PersistentFlags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file (default the same as kubectl's)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default the current context)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "",
		"explain: namespace of the pod (default the namespace of the context); status and doctor: same as "+
			"--tandem-namespace")
	flags.StringVar(&o.Daemons, "tandem-namespace", "",
		"namespace of Tandem's daemons (default the only namespace with such DaemonSets)")
	flags.StringVarP(&o.Selector, "selector", "l", defaultSelector,
		"label selector for the pods of Tandem's daemons, if an operator deploys them")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "maximum time to wait for the answer of a node")
	root.AddCommand(newClusterStatus(&o), newClusterExplain(&o), newClusterDoctor(&o), cli.NewVersionCommand())
	return root
}

// ofDaemons returns the options of a command whose only namespace is the daemons'.
func ofDaemons(o *options) *options {
	those := *o
	those.Daemons = cmp.Or(o.Daemons, o.Namespace)
	return &those
}

func newClusterDoctor(o *options) *cobra.Command {
	format, cpus := cli.OneOf(cli.AsTable, cli.AsJSON), 0
	cmd := &cobra.Command{
		Use:   "doctor NODE",
		Short: "Find problems that prevent GPUs and VFs on the same switch on a node",
		Long: `Run "tandem doctor" in the pod of a daemon on the node, with the pods that the kubelet rejected, and with the kubelet's
configuration from the API server if you have permission for nodes/proxy. Files outside the daemon's pod are reported as unknown. The
command changes nothing.`,
		Example: `  kubectl tandem doctor gpu-17
  kubectl tandem doctor gpu-17 --cpus 16
  kubectl tandem doctor gpu-17 -o json`,
		Annotations: map[string]string{cli.MoreExitCodes: doctor.ExitCodes},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.NewUsageError("want one node: NODE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cpus < 0 {
				return cli.NewUsageError("--cpus %d: want 0 or more", cpus)
			}
			c, err := connect(*ofDaemons(o))
			if err != nil {
				return err
			}
			report, notes, err := c.Doctor(cmd.Context(), args[0], cpus, format.Format)
			for _, note := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
			}
			var exit *exitError
			isVerdict := errors.As(err, &exit) && (exit.Code == cli.ExitFound || exit.Code == cli.ExitUnknown)
			if isVerdict {
				err = cli.FoundError(exit.Code)
			}
			if report == nil {
				return err
			}
			if failed := format.Show(cmd, report); failed != nil {
				return failed
			}
			return err
		},
		ValidArgsFunction: cli.CompleteFirst(func(cmd *cobra.Command, typed string) ([]string, error) {
			return completeNodes(ofDaemons(o))(cmd, typed)
		}),
	}
	cmd.Flags().IntVar(&cpus, "cpus", 0, "exclusive CPUs that containers request in addition to GPUs and VFs")
	format.Register(cmd)
	return cmd
}

// completeNodes completes the names of nodes with a daemon.
func completeNodes(o *options) cli.Values {
	return func(cmd *cobra.Command, _ string) ([]string, error) {
		c, err := connect(*o)
		if err != nil {
			return nil, err
		}
		daemons, err := c.findDaemons(cmd.Context(), "")
		return slices.Sorted(maps.Keys(daemons)), err
	}
}

func newClusterExplain(o *options) *cobra.Command {
	var q coordinator.PodQuestion
	var node string
	format := cli.OneOf(cli.AsTable, cli.AsJSON)
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD",
		Short: "Explain the device assignment of a pod's containers",
		Long: `Query Tandem's daemons on the node of a pod for their decisions: the kubelet's calls, the data about the container and its source,
the chosen devices, and the devices that were offered on each switch. The output is that of "tandem explain" on the node.

For a pod with status TopologyAffinityError the kubelet has called no plugin. The command then compares the pod's requests with the
devices that each NUMA node and each switch has free now, names the pods that hold the other devices, and says whether the empty node
admits the pod. What was free at the rejection is in no record; the output tells which pods have held their devices since before it.`,
		Example: `  kubectl tandem explain train-0
  kubectl tandem explain team/train-0 --container worker -o json
  kubectl tandem explain team/train-0 --node gpu-17`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.NewUsageError("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := q.SetPod(args[0]); err != nil {
				return err
			}
			c, err := connect(*o)
			if err != nil {
				return err
			}
			explanation, err := c.Explain(cmd.Context(), q, node, format.Format)
			if err != nil {
				return err
			}
			return format.Show(cmd, explanation)
		},
		ValidArgsFunction: cli.CompleteFirst(func(cmd *cobra.Command, typed string) ([]string, error) {
			c, err := connect(*o)
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
	q.RegisterFlags(cmd.Flags())
	cmd.Flags().StringVar(&node, "node", "", "node of a deleted pod")
	cli.CompleteFlag(cmd, "node", completeNodes(o))
	format.Register(cmd)
	return cmd
}

func newClusterStatus(o *options) *cobra.Command {
	format := cli.OneOf(cli.AsTable, cli.AsJSON)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show free devices and problems of all nodes",
		Long: `Query Tandem's daemons on all nodes in parallel, and show a line for each node: the mode, the free GPUs and VFs, the number of
available pairs (a GPU and a VF on one switch), the number of containers with pairs on different switches, the version of the daemons,
and problems. If a node does not answer, its line shows the reason; it is an error if no node answers.

-o json includes the complete output of "tandem status -o json" for each node.`,
		Example: `  kubectl tandem status
  kubectl tandem status --context training -o json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(*ofDaemons(o))
			if err != nil {
				return err
			}
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			err = format.Write(cmd, status, status.Table)
			if err == nil && !slices.ContainsFunc(status.Nodes, nodeStatus.HasAnswer) {
				err = errors.New("no node answers: the output has the reasons")
			}
			return err
		},
	}
	format.Register(cmd)
	return cmd
}
