// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
)

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
