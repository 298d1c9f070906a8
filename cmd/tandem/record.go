// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/topology/recording"
)

func newRecord() *cobra.Command {
	var from machine.Source
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Record this machine in a text file",
		Long: `Record the data that Tandem reads from this machine in a text file: the PCI tree, NUMA nodes, drivers, names of netdevs and RDMA
devices, GPUs and their links. No privileges are necessary: unreadable entries are omitted and counted. Only root can record ACS and
ATS (files config), and which NIC a DMA function belongs to (files vpd). The file contains no MAC address, GUID, serial number or host
name: numbers from 1 up replace those of which Tandem needs to know which are equal. All commands with --machine read the file,
on any computer.`,
		Example: `  tandem record > my-machine.txt
  sudo tandem record -f my-machine.txt
  tandem topo --machine my-machine.txt`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			machine, err := recording.Capture(os.DirFS(from.SysfsRoot))
			if err != nil {
				return fmt.Errorf("read %s: %w", from.SysfsRoot, err)
			}
			if err := cli.WriteNew(machine, file, force, cmd.OutOrStdout()); err != nil {
				return err
			}
			summariseRecording(machine, cmd.ErrOrStderr())
			return nil
		},
	}
	cmd.Flags().StringVar(&from.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write (default standard output)")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}

// summariseRecording reports the recorded and the omitted parts.
func summariseRecording(machine *recording.Machine, w io.Writer) {
	var parts []string
	for _, part := range [][2]string{
		{"PCI function", "bus/pci/devices/*"}, {"NUMA node", "devices/system/node/node*"},
		{"netdev", "class/net/*"}, {"RDMA device", "class/infiniband/*"},
		{"render node", "class/drm/renderD*"}, {"KFD node", "class/kfd/kfd/topology/nodes/*"},
	} {
		names, _ := fs.Glob(machine.FS(), part[1]) // the patterns are well formed
		parts = append(parts, cli.Count(len(names), part[0]))
	}
	fmt.Fprintf(w, "recorded %d entries: %s\n", machine.Len(), strings.Join(parts, ", "))
	for _, comment := range machine.Comments() {
		fmt.Fprintln(w, comment)
	}
}
