// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/fix"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// examiner is the command line of doctor.
type examiner struct {
	from    machine.Source
	node    doctor.Node
	config  string // of the VFs
	format  output
	fix     fixer
	pools   selection // of config
	refused int       // number of refused pods on the node; less than 0: by the kubelet
}

const doctorExitCodes = `  3  there is an error or a warning
  4  there is neither, and something could not be read or told (unknown)
`

func newDoctor() *cobra.Command {
	x := examiner{format: oneOf(asTable, asJSON)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what stands between this node and GPUs and VFs on the same switch",
		Long: `Look at this node's hardware, its kubelet's configuration and state, and its sockets, and say what stands between it and
pods whose GPUs and VFs share a switch: each finding with what was seen, why it matters and how to put it right. Run it as root on
the node, or in a debug container with the node's processes. It changes nothing.

--fix-kubelet shows the settings that the kubelet lacks: those of deployments/kubelet/config.yaml, and CPUs for containers alone only
with --static-cpus. With --apply it writes them into a file of its own in the kubelet's folder of drop-ins (--config-dir), which
--rollback-kubelet removes. It changes no file that others own: for a kubelet without such a folder it says how the settings get there.

Request shapes are judged for an empty node by the kubelet's own rules, for the VFs that config.json selects (--config) and as it
offers them; without it for those that the running tandem-rdma offers. Where none runs they are those of all NICs with RDMA, each
with its NUMA node, and the verdict is a guess.

Of the pools in config.json it tells which devices each selector rejects and why, the device that came nearest, and keys that nobody
reads, with the right ones: why a VF is not offered. What a container has is judged by what can be seen of it on the node.

A node in the mode of DRA (tandem-dra) is judged as one: by its devices, by what the API server can do with ResourceSlices, and by whether
the kubelet finds the driver.

Pods that the kubelet has refused for their NUMA nodes are counted where the kubelet lists its pods (Kubernetes 1.37 and later).

What may not be read is said, and is not taken for damage. It needs root's rights for all that it looks at.`,
		Example: `  tandem doctor
  tandem doctor --config /etc/pcidp/config.json
  tandem doctor --config /etc/pcidp/config.json --cpus 16 -o json
  tandem doctor --fix-kubelet
  tandem doctor --fix-kubelet --static-cpus
  tandem doctor --fix-kubelet --apply
  tandem doctor --rollback-kubelet
  kubectl debug node/NODE -it --profile=sysadmin --image=tandem -- \
    tandem doctor --dev-root=/host/dev --kubelet-dir=/host/var/lib/kubelet --run-dir=/host/run/tandem`,
		Args:        noArguments,
		Annotations: map[string]string{moreExitCodes: doctorExitCodes},
		RunE:        func(cmd *cobra.Command, _ []string) error { return x.run(cmd) },
	}
	x.register(cmd)
	return cmd
}

func (x *examiner) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&x.from.SysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	flags.StringVar(&x.node.DevRoot, "dev-root", "/dev", "folder with the device nodes")
	flags.StringVar(&x.node.KubeletDir, "kubelet-dir", "",
		"the kubelet's root folder (default what its command line says, or "+kubelet.DefaultDir+")")
	registerRunDir(flags, &x.node.RunDir)
	flags.StringVar(&x.node.ProcRoot, "proc-root", "/proc", "folder where the running kubelet's command line is")
	flags.StringVar(&x.node.Config, "kubelet-config", "",
		"the kubelet's configuration (default what its command line says, or config.yaml in --kubelet-dir)")
	flags.StringVar(&x.node.ConfigDir, "kubelet-config-dir", "",
		"folder with drop-ins of that configuration (default what its command line says)")
	registerTopologyFile(flags, &x.from.TopologyFile)
	flags.StringVar(&x.config, "config", "", "config.json of the SR-IOV network device plugin, "+
		"to select VFs (default those that the running tandem-rdma offers)")
	flags.IntVar(&x.node.CPUs, "cpus", 0, "whole CPUs that containers ask for beside GPUs and VFs")
	flags.IntVar(&x.refused, "refused-pods", -1, "how many pods of this node lie there refused with "+
		"TopologyAffinityError (default those that the kubelet lists, from Kubernetes 1.37 on)")
	x.format.register(cmd)
	x.fix.register(flags)
}

func (x *examiner) run(cmd *cobra.Command) error {
	if x.node.CPUs < 0 {
		return usage("--cpus %d: want 0 or more", x.node.CPUs)
	}
	if x.node.KubeletDir == "" {
		x.node.KubeletDir = doctor.KubeletDir(x.node.ProcRoot)
	}
	if x.node.RunDir == "" {
		x.node.RunDir = coordination.FindRunDir(x.node.KubeletDir)
	}
	x.node.Now = time.Now()
	if done, err := x.fix.run(cmd, x); done || err != nil {
		return err
	}
	if err := x.read(cmd.Context()); err != nil {
		return err
	}
	found := doctor.Examine(x.node)
	table := func() []byte {
		return slices.Concat(modeText(x.node.Mode), x.pools.text(), remarkText(found.Remark),
			doctor.Report(found.Findings))
	}
	if err := x.format.write(cmd.OutOrStdout(), found, table); err != nil {
		return err
	}
	return verdict(found.Findings)
}

// modeText says that the node is in the mode of DRA, where other things stand in the way.
func modeText(m mode.Mode) []byte {
	if m != mode.DRA {
		return nil
	}
	return []byte("This node is in the mode of DRA: the scheduler allocates, and what the kubelet's managers " +
		"align is not looked at.\n\n")
}

func remarkText(remark string) []byte {
	if remark == "" {
		return nil
	}
	return []byte(remark + "\n\n")
}

// verdict is nil where nothing was found.
func verdict(findings []doctor.Finding) error {
	known := func(f doctor.Finding) bool { return f.Severity != doctor.Unknown }
	switch {
	case slices.ContainsFunc(findings, known):
		return foundError{exitFound}
	case len(findings) > 0:
		return foundError{exitUnknown}
	default:
		return nil
	}
}

// read takes the machine over, with what is offered there.
func (x *examiner) read(ctx context.Context) error {
	n, err := x.readMachine()
	if err != nil {
		return err
	}
	x.node.Mode, x.node.Notes = doctor.RunningMode(ctx, x.node.RunDir)
	x.node.Plugins = doctor.AskPlugins(ctx, x.node.RunDir, x.node.Sys)
	if x.node.VFs, x.node.Guess, err = x.readVFs(ctx, n); err != nil {
		return err
	}
	x.node.GPUs = n.GPUDevices()
	if x.refused < 0 {
		x.node.Refused = doctor.AskRefused(ctx, x.node.KubeletDir)
	} else {
		x.node.Refused = doctor.CountedRefused(x.refused)
	}
	return nil
}

// readMachine takes the machine over from sysfs.
func (x *examiner) readMachine() (*machine.Node, error) {
	n, err := machine.Read(&x.from)
	if err != nil {
		return nil, err
	}
	x.node.Sys, x.node.Tree, x.node.Links = os.DirFS(x.from.SysfsRoot), n.Tree, n.Links
	return n, nil
}

// readVFs are the VFs that the configuration selects, or those that the running tandem-rdma offers, or those
// of all NICs with RDMA: a guess, and why it is one.
func (x *examiner) readVFs(
	ctx context.Context, n *machine.Node,
) (vfs []doctor.Device, guess string, err error) {
	if x.config == "" {
		vfs, err := doctor.RunningVFs(ctx, x.node.RunDir, n.Tree)
		if err == nil {
			return vfs, "", nil
		}
		guess = "no --config, and " + err.Error()
	}
	vfs, notes, err := n.VFDevices(x.config, &x.from)
	if err == nil && x.config != "" {
		x.pools, err = newSelection(n, x.config, &x.from, notes)
	}
	return vfs, guess, err
}

// fixer changes the kubelet's configuration.
type fixer struct {
	fix, rollback, last bool
	change              fix.Change
}

func (f *fixer) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.fix, "fix-kubelet", false, "show which settings the kubelet lacks")
	flags.BoolVar(&f.change.Apply, "apply", false, "with --fix-kubelet: write them into "+fix.DropIn+
		" in the kubelet's folder of drop-ins")
	flags.BoolVar(&f.change.StaticCPUs, "static-cpus", false, "with --fix-kubelet: also cpuManagerPolicy "+
		"static, with a CPU of each NUMA node reserved for the system unless some are")
	flags.BoolVar(&f.rollback, "rollback-kubelet", false, "remove that file")
	flags.BoolVar(&f.last, "last", false, "with --rollback-kubelet: undo only the last change of the file; "+
		"possible until the kubelet is well with the change")
}

// run does what the flags say; false where they say nothing.
func (f *fixer) run(cmd *cobra.Command, x *examiner) (done bool, err error) {
	switch {
	case f.fix && f.rollback:
		return true, usage("--fix-kubelet and --rollback-kubelet exclude each other")
	case f.change != fix.Change{} && !f.fix:
		return true, usage("--apply and --static-cpus belong to --fix-kubelet")
	case f.last && !f.rollback:
		return true, usage("--last belongs to --rollback-kubelet")
	case f.rollback:
		x.node.Sys = os.DirFS(x.from.SysfsRoot) // the devices do not matter
		return true, fix.RollBack(cmd.OutOrStdout(), x.node.Kubelet, f.last)
	case f.fix:
		if _, err := x.readMachine(); err != nil {
			return true, err
		}
		x.node.Mode, _ = doctor.RunningMode(cmd.Context(), x.node.RunDir)
		return true, fix.Run(cmd.OutOrStdout(), x.node.Kubelet, f.change)
	default:
		return false, nil
	}
}
