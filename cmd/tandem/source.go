// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// registerSource adds the flags of commands that read this node or a recorded machine.
func registerSource(cmd *cobra.Command, s *machine.Source) {
	flags := cmd.Flags()
	flags.StringVar(&s.Recording, "machine", "", "recorded machine, a file of tandem record or tandem qualify")
	flags.StringVar(&s.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	registerTopologyFile(flags, &s.TopologyFile)
	cli.CompleteMachines(cmd)
	plainflag.Machine.Put(flags, "machine", "sysfs-root", "topology-file")
}

func registerTopologyFile(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "topology-file", "",
		"NCCL topology file (NCCL_TOPO_FILE) with the PCIe switches, for a guest with a flat PCI tree in sysfs")
	plainflag.Files.Put(flags, "topology-file")
}

func registerRunDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "run-dir", "",
		"--run-dir of the plugins (default the folder in which a plugin answers: "+
			"device-plugins/tandem in the kubelet's folder, or /run/tandem)")
	plainflag.Files.Put(flags, "run-dir")
}

func registerKubeletDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "kubelet-dir", kubelet.DefaultDir, "root folder of the kubelet (--root-dir)")
	plainflag.Files.Put(flags, "kubelet-dir")
}

// checkSource refuses two sources at once.
func checkSource(flags *pflag.FlagSet) error {
	if flags.Changed("machine") && flags.Changed("sysfs-root") {
		return cli.Usage("--machine and --sysfs-root exclude each other")
	}
	return nil
}
