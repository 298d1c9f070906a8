// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

// registerSource adds the flags of commands that read this node or a recorded machine.
func registerSource(cmd *cobra.Command, s *machine.Source) {
	flags := cmd.Flags()
	flags.StringVar(&s.Recording, "machine", "", "recorded machine to read, a file that tandem record wrote")
	flags.StringVar(&s.SysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	registerTopologyFile(flags, &s.TopologyFile)
	completeMachines(cmd)
}

func registerTopologyFile(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "topology-file", "",
		"topology file of NCCL (NCCL_TOPO_FILE) that says which devices share a switch, where sysfs does not tell")
}

func registerRunDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "run-dir", "", "the plugins' --run-dir (default where one of them answers: "+
		"device-plugins/tandem in the kubelet's folder, or /run/tandem)")
}

// checkSource refuses two sources at once.
func checkSource(flags *pflag.FlagSet) error {
	if flags.Changed("machine") && flags.Changed("sysfs-root") {
		return usage("--machine and --sysfs-root exclude each other")
	}
	return nil
}
