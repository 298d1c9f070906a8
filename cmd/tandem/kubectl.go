// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

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
		return newRoot(), args[1:]
	}
}

// newKubectl returns the command of the kubectl plugin, which queries the nodes of a cluster instead of this
// node.
func newKubectl() *cobra.Command {
	root := rooted(&cobra.Command{
		Use:   asPlugin,
		Short: "Ask the nodes of a cluster about GPUs and RDMA VFs on the same PCIe switch",
		Long: `Ask the nodes of a cluster about GPUs and RDMA VFs on the same PCIe switch. It starts the program tandem in the pods of Tandem's
daemons, as kubectl exec does, with your own rights: to list DaemonSets, to get and list pods, and to get and create pods/exec where the
daemons are. These are pods that a DaemonSet has made, and that mount folders of the node; no other pod is asked, whatever its labels. If
DaemonSets like that are in several namespaces, --tandem-namespace has to say which of them is Tandem's.`,
		// The command as users type it.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tandem"},
	})
	o := cluster.Options{}
	flags := root.PersistentFlags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig to use (default where kubectl looks)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "explain: namespace of the pod (default that of the "+
		"context); status and doctor: the same as --tandem-namespace")
	flags.StringVar(&o.Daemons, "tandem-namespace", "", "namespace of Tandem's daemons (default the only one "+
		"that has some)")
	flags.StringVarP(&o.Selector, "selector", "l", cluster.Selector,
		"labels of the pods of Tandem's daemons, where an operator has made them")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long a node may take to answer")
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
		return nil, usage("--timeout %s: want more than 0", o.Timeout)
	}
	return cluster.Connect(*o)
}
