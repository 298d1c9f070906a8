// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
)

// The names under which kubectl finds the plugin tandem and its completion (kubectl v1.26 and later start
// kubectl_complete-tandem with the arguments so far).
const (
	asPlugin     = "kubectl-tandem"
	asCompletion = "kubectl_complete-tandem"
)

// program returns the command for the name under which the program was started, and the arguments.
func program(args []string) (*cobra.Command, []string) {
	switch filepath.Base(args[0]) {
	case asPlugin:
		return newKubectl(), args[1:]
	case asCompletion:
		return newKubectl(), append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	default:
		root := newRoot()
		refuseNodeCommands(root, runtime.GOOS)
		return root, args[1:]
	}
}

// newKubectl returns the command of the kubectl plugin, which queries the nodes of a cluster instead of this
// node.
func newKubectl() *cobra.Command {
	root := cli.Rooted(&cobra.Command{
		Use:   asPlugin,
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
	o := cluster.Options{}
	flags := root.PersistentFlags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file (default the same as kubectl's)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default the current context)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "",
		"explain: namespace of the pod (default the namespace of the context); status and doctor: same as "+
			"--tandem-namespace")
	flags.StringVar(&o.Daemons, "tandem-namespace", "",
		"namespace of Tandem's daemons (default the only namespace with such DaemonSets)")
	flags.StringVarP(&o.Selector, "selector", "l", cluster.Selector,
		"label selector for the pods of Tandem's daemons, if an operator deploys them")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "maximum time to wait for the answer of a node")
	root.AddCommand(newClusterStatus(&o), newClusterExplain(&o), newClusterDoctor(&o), newVersion())
	return root
}

// ofDaemons returns the options of a command whose only namespace is the daemons'.
func ofDaemons(o *cluster.Options) *cluster.Options {
	those := *o
	those.Daemons = cmp.Or(o.Daemons, o.Namespace)
	return &those
}

// connect reads the kubeconfig.
func connect(o *cluster.Options) (*cluster.Cluster, error) {
	if o.Timeout <= 0 {
		return nil, cli.Usage("--timeout %s: want more than 0", o.Timeout)
	}
	return cluster.Connect(*o)
}
