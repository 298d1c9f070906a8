// SPDX-License-Identifier: Apache-2.0

// Command tandem is for people: it shows the distances of a node's GPUs and NICs, records a machine, and
// predicts the plugins' choices. It needs no privilege, no cluster and no running plugin. Under the name
// kubectl-tandem it is a kubectl plugin that queries the nodes of a cluster.
package main

import (
	"io"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
)

func main() {
	klog.SetLogger(logr.Discard()) // of client-go, whose errors have all that users need
	root, args := program(os.Args)
	os.Exit(cli.Execute(root, args, os.Stdout, os.Stderr))
}

func newRoot() *cobra.Command {
	root := cli.Rooted(&cobra.Command{
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

// Output formats beside those of package cli: with every device, as a picture, as a page around the picture,
// as NCCL's topology file, as the objects that the DRA driver publishes.
const (
	asWide  = "wide"
	asSVG   = "svg"
	asHTML  = "html"
	asNCCL  = "nccl"
	asSlice = "resourceslices"
)

// Exit codes beside those of package cli: of plan and doctor; of doctor alone.
const (
	exitFound   = 3
	exitUnknown = 4
)

// isPicture reports whether a format is a picture.
func isPicture(format string) bool { return format == asSVG || format == asHTML }

// draw writes a node as a picture, or as a page around the picture.
func draw(format string, w io.Writer, n *picture.Node) error {
	drawn := n.SVG()
	if format == asHTML {
		var err error
		if drawn, err = (picture.Page{Title: n.Title, Node: n}).HTML(); err != nil {
			return err
		}
	}
	_, err := w.Write(drawn)
	return err
}
