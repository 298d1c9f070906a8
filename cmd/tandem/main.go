// SPDX-License-Identifier: Apache-2.0

// Command tandem is for people: it shows the distances of a node's GPUs and NICs, records a machine, and
// predicts the plugins' choices. It needs no privilege, no cluster and no running plugin. Under the name
// kubectl-tandem it is a kubectl plugin that queries the nodes of a cluster.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/cluster"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/qualify"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
)

func main() {
	klog.SetLogger(logr.Discard()) // of client-go, whose errors have all that users need
	root, args := commandOf(os.Args)
	os.Exit(cli.Execute(root, args, os.Stdout, os.Stderr))
}

func newRoot() *cobra.Command {
	root := cli.CompleteRoot(&cobra.Command{
		Use:   "tandem",
		Short: "Show, record and plan GPUs and RDMA VFs on the same PCIe switch",
		Long: `Show, record and plan GPUs and RDMA VFs on the same PCIe switch.

"tandem completion SHELL" prints the completion of commands, flags and values for bash, zsh, fish or powershell; to load it in bash:
source <(tandem completion bash)`,
		Annotations: map[string]string{cli.AboutCompletion: ` The packages install it for bash, zsh and fish.
bash needs the package bash-completion. kubectl completes "kubectl tandem" by itself, if kubectl_complete-tandem, a link to
tandem, is in PATH.`},
	})
	root.AddCommand(newTopo(), newRecord(), qualify.NewCommand(), newPlan(), coordinator.NewStatusCommand(),
		coordinator.NewExplainCommand(), verify.NewCommand(), doctor.NewCommand(), cli.NewVersionCommand())
	return root
}

// Output formats beside those of package cli: as a picture, as NCCL's topology
// file, as the objects that the DRA driver publishes.
const (
	asSVG   = "svg"
	asNCCL  = "nccl"
	asSlice = "resourceslices"
)

// checkSource refuses two sources at once.
func checkSource(flags *pflag.FlagSet) error {
	if flags.Changed("machine") && flags.Changed("sysfs-root") {
		return cli.NewUsageError("--machine and --sysfs-root exclude each other")
	}
	return nil
}

// nodeCommand is a command that reads the node on which tandem runs.
type nodeCommand struct {
	flags   []string // with one of these flags the command reads files instead
	instead string   // remedy on a computer that is no node
}

var nodeCommands = map[string]nodeCommand{
	"topo":    {[]string{"machine", "sysfs-root"}, "give a recording with --machine"},
	"plan":    {[]string{"machine", "sysfs-root"}, "give a recording with --machine"},
	"doctor":  {[]string{"machine", "sysfs-root"}, "give a recording with --machine, or use kubectl tandem"},
	"record":  {[]string{"sysfs-root"}, "run the command on the node"},
	"qualify": {[]string{"check", "sysfs-root"}, "run the command on the node, or judge a report with --check"},
	"status":  {nil, "run kubectl tandem status"},
	"explain": {nil, "run kubectl tandem explain"},
	"verify":  {nil, "run the command in the pod"},
}

// refuseNodeCommands makes the commands that read this node fail on other systems than Linux, unless a flag
// names files.
func refuseNodeCommands(root *cobra.Command, system string) {
	if system == "linux" {
		return
	}
	for _, cmd := range root.Commands() {
		c, ok := nodeCommands[cmd.Name()]
		if !ok {
			continue
		}
		cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
			if slices.ContainsFunc(c.flags, cmd.Flags().Changed) {
				return nil
			}
			return fmt.Errorf("this command needs the node that it runs on, which must be Linux, not %s; %s",
				system, c.instead)
		}
	}
}

// The names under which kubectl finds the plugin tandem and its completion (kubectl v1.26 and later start
// kubectl_complete-tandem with the arguments so far).
const (
	asPlugin     = "kubectl-tandem"
	asCompletion = "kubectl_complete-tandem"
)

// commandOf returns the command for the name under which the program was started, and the arguments.
func commandOf(args []string) (*cobra.Command, []string) {
	switch filepath.Base(args[0]) {
	case asPlugin:
		return cluster.NewCommand(), args[1:]
	case asCompletion:
		return cluster.NewCommand(), append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	default:
		root := newRoot()
		refuseNodeCommands(root, runtime.GOOS)
		return root, args[1:]
	}
}
