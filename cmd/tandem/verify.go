// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/topology"
)

func newVerify() *cobra.Command {
	v := verify.Check{Within: topology.PXB}
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check inside a pod that its GPUs and VFs are on the same switches",
		Long: `Check, inside a pod, that every GPU of the container has a VF on its own PCIe switch. The VFs are those that the
environment names (PCIDEVICE_*); the GPUs are those whose device nodes are in /dev/dri (AMD) and /dev (NVIDIA), or those
that NVIDIA_VISIBLE_DEVICES names. Their places are read from sysfs. What a plugin says is checked, not believed. The
container needs no privilege; one that is privileged has the device nodes of all GPUs.`,
		Example: `  tandem verify
  tandem verify --gpus 4 --vfs 4
  tandem verify --within PHB -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.Environment = os.Environ()
			result, err := v.Run()
			if err != nil {
				return err
			}
			err = format.write(cmd.OutOrStdout(), result, result.Table)
			if err == nil && len(result.Failures) > 0 {
				err = errors.New(strings.Join(result.Failures, "; "))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&v.SysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	registerTopologyFile(cmd.Flags(), &v.Topology)
	cmd.Flags().StringVar(&v.DevRoot, "dev-root", "/dev", "folder with the device nodes")
	cmd.Flags().StringVar(&v.ProcRoot, "proc-root", "/proc",
		"folder with what NVIDIA's driver tells of its GPUs")
	cmd.Flags().StringVar(&v.PairsFile, "pairs", "/run/tandem/pairs.json",
		"file in which the plugins tell the container its pairs; it may be absent")
	cmd.Flags().IntVar(&v.GPUs, "gpus", -1, "GPUs that there have to be; -1 for one or more")
	cmd.Flags().IntVar(&v.VFs, "vfs", -1, "VFs that there have to be; -1 for one or more")
	cmd.Flags().TextVar(&v.Within, "within", topology.PXB,
		"farthest distance of a pair that is accepted: PIX, PXB, PHB, NODE or SYS")
	complete(cmd, "within", fixed("PIX", "PXB", "PHB", "NODE", "SYS"))
	cmd.Flags().BoolVar(&v.InOrder, "in-order", false,
		"fail also when the i-th VF does not pair with the i-th GPU")
	format.register(cmd)
	return cmd
}
