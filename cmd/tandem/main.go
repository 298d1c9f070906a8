// SPDX-License-Identifier: Apache-2.0

// Command tandem is for people: it shows the distances of a node's GPUs and NICs, records a machine, and
// predicts the plugins' choices. It needs no privilege, no cluster and no running plugin. Under the name
// kubectl-tandem it is a kubectl plugin that queries the nodes of a cluster.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
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
	root.AddCommand(newTopo(), newRecord(), newQualify(), newPlan(), newStatus(), newExplain(), newVerify(),
		newDoctor(), newVersion(), newMoved("play"), newMoved("simulate"))
	return root
}

// newVersion returns a command with more than --version: the source, Go and the platform.
func newVersion() *cobra.Command {
	format := cli.OneOf(cli.AsTable, cli.AsJSON)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit, Go version and platform",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			build := cli.NewBuild(cmd.Root().Name(), info)
			return format.Write(cmd, build, build.Table)
		},
	}
	format.Register(cmd)
	return cmd
}

// Output formats beside those of package cli: with every device, as a picture, as NCCL's topology
// file, as the objects that the DRA driver publishes.
const (
	asWide  = "wide"
	asSVG   = "svg"
	asNCCL  = "nccl"
	asSlice = "resourceslices"
)

// Exit codes beside those of package cli: of plan and doctor; of doctor alone.
const (
	exitFound   = 3
	exitUnknown = 4
)

// registerSource adds the flags of commands that read this node or a recorded machine.
func registerSource(cmd *cobra.Command, s *machine.Source) {
	flags := cmd.Flags()
	flags.StringVar(&s.Recording, "machine", "", "recorded machine, a file of tandem record or tandem qualify")
	flags.StringVar(&s.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	registerTopologyFile(flags, &s.TopologyFile)
	cli.CompleteMachines(cmd)
}

func registerTopologyFile(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "topology-file", "",
		"NCCL topology file (NCCL_TOPO_FILE) with the PCIe switches, for a guest with a flat PCI tree in sysfs")
}

func registerRunDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "run-dir", "",
		"--run-dir of the plugins (default the folder in which a plugin answers: "+
			"device-plugins/tandem in the kubelet's folder, or /run/tandem)")
}

func registerKubeletDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "kubelet-dir", kubelet.DefaultDir, "root folder of the kubelet (--root-dir)")
}

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
			if c.readsFiles(cmd.Flags()) {
				return nil
			}
			return fmt.Errorf("this command needs the node that it runs on, which must be Linux, not %s; %s",
				system, c.instead)
		}
	}
}

func (c nodeCommand) readsFiles(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(c.flags, flags.Changed)
}

// newMoved returns a hidden command that names the program which has the command of this name.
func newMoved(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: the command is tandem-lab %s\n", cmd.CommandPath(), name)
			return cli.FoundError(cli.ExitUsage)
		},
	}
}
