// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/fix"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/mode"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// examiner is the command line of doctor.
type examiner struct {
	from    machine.Source
	node    doctor.Node
	config  string // of the VFs
	vendor  string // --vendor of tandem-gpu
	format  output
	fix     fixer
	pools   selection          // of config
	refused doctor.RefusedPods // of the node; nil: by the kubelet
}

const doctorExitCodes = `  3  errors or warnings found
  4  no error or warning, but unknown results
`

func newDoctor() *cobra.Command {
	x := examiner{format: oneOf(asTable, asJSON).judging(doctorVerdicts)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems that prevent GPUs and VFs on the same switch on this node",
		Long: `Check this node's hardware, the kubelet's configuration and state, and the plugins' sockets for problems that prevent pods with
GPUs and VFs on one switch. Each finding has an observation, its effect and a remedy. Run the command as root on the node, or in a
debug container with the node's PID namespace. The command changes nothing unless --apply or --rollback-kubelet is set.

--fix-kubelet shows the settings that the kubelet lacks: the settings of deployments/kubelet/config.yaml, and with --static-cpus also
exclusive CPUs for containers. --apply writes the settings to a separate file in the kubelet's folder of drop-ins (--config-dir);
--rollback-kubelet removes the file, or with --last undoes its last change. No other file is changed: for a kubelet without such a
folder, the output describes the steps.

The shapes of container requests are judged for an empty node with the kubelet's own rules. The VFs are those of --config
(config.json), or without --config those of the running tandem-rdma. If neither exists, the VFs are all VFs of NICs with RDMA, each
with its NUMA node, and the verdict is only an estimate.

For each pool in config.json, the output shows the devices that a selector rejects, the reason, the closest device, and unknown keys
with suggestions, to explain why a VF is not offered. Running containers are judged by their data on the node.

For a node in DRA mode (tandem-dra), the checks cover the devices, the API server's support for ResourceSlices, and the registration
of the driver with the kubelet.

The number of pods that the kubelet rejected for their NUMA nodes is available with Kubernetes 1.37 and later.

With --machine the command judges the hardware of a recorded machine, and reports the other subjects as unknown.

Unreadable data is reported as unknown, not as a problem. The complete set of checks requires root.`,
		Example: `  tandem doctor
  tandem doctor --config /etc/pcidp/config.json
  tandem doctor --config /etc/pcidp/config.json --cpus 16 -o json
  tandem doctor --fix-kubelet
  tandem doctor --fix-kubelet --static-cpus
  tandem doctor --fix-kubelet --apply
  tandem doctor --rollback-kubelet
  tandem doctor --machine my-machine.txt
  kubectl debug node/NODE -it --profile=sysadmin --image=ghcr.io/tandem-k8s/tandem:VERSION -- \
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
	registerSource(cmd, &x.from)
	x.registerNode(flags)
	flags.IntVar(&x.node.CPUs, "cpus", 0, "exclusive CPUs that containers request in addition to GPUs and VFs")
	flags.Var(&x.refused, "refused-pods", "number of pods of this node that were rejected with "+
		"TopologyAffinityError, optionally with their requests, as in 2:amd.com/gpu=2,tandem.dev/rdma_vf=2,cpu=8; "+
		"repeatable (default the kubelet's own list, with Kubernetes 1.37 and later)")
	flags.StringVar(&x.vendor, "gpu-vendor", "", "value of --vendor of this node's tandem-gpu, to recognize "+
		"GPUs of another vendor (default unknown)")
	flags.StringVar(&x.node.ReadElsewhere, "read-elsewhere", "", "name of this node in a report that is read "+
		"elsewhere, as by kubectl tandem doctor: --kubelet-config is the kubelet's configz")
	plainflag.Request.Put(flags, "cpus", "refused-pods")
	plainflag.Devices.Put(flags, "gpu-vendor")
	plainflag.Output.Put(flags, "read-elsewhere")
	x.format.register(cmd)
	x.fix.register(flags)
}

// registerNode adds the flags with the places of the node's files.
func (x *examiner) registerNode(flags *pflag.FlagSet) {
	flags.StringVar(&x.node.DevRoot, "dev-root", "/dev", "folder of the device nodes")
	flags.StringVar(&x.node.KubeletDir, "kubelet-dir", "",
		"root folder of the kubelet (default from the kubelet's command line, or "+kubelet.DefaultDir+")")
	registerRunDir(flags, &x.node.RunDir)
	flags.StringVar(&x.node.ProcRoot, "proc-root", "/proc",
		"root of procfs, to find the running kubelet's command line")
	flags.StringVar(&x.node.Config, "kubelet-config", "",
		"kubelet configuration file (default from the kubelet's command line, or config.yaml in --kubelet-dir)")
	flags.StringVar(&x.node.ConfigDir, "kubelet-config-dir", "",
		"folder of the kubelet's configuration drop-ins (default from the kubelet's command line)")
	flags.StringVar(&x.config, "config", "", "config.json of the SR-IOV network device plugin, "+
		"to select VFs (default the VFs that the running tandem-rdma offers)")
	plainflag.Kubelet.Put(flags, "kubelet-dir", "kubelet-config", "kubelet-config-dir")
	plainflag.Files.Put(flags, "dev-root", "proc-root")
	plainflag.Devices.Put(flags, "config")
}

func (x *examiner) run(cmd *cobra.Command) error {
	if !x.from.Live() {
		return x.runRecorded(cmd)
	}
	if x.node.CPUs < 0 {
		return usage("--cpus %d: want 0 or more", x.node.CPUs)
	}
	x.complete()
	if done, err := x.fix.run(cmd, x); done || err != nil {
		return err
	}
	if err := x.read(cmd.Context()); err != nil {
		return err
	}
	return x.report(cmd)
}

// complete completes the places of the node that no flag has.
func (x *examiner) complete() {
	if x.node.KubeletDir == "" {
		x.node.KubeletDir = doctor.KubeletDir(x.node.ProcRoot)
	}
	if x.node.RunDir == "" {
		x.node.RunDir = coordination.FindRunDir(x.node.KubeletDir)
	}
	x.node.Now = time.Now()
}

// ofRecordings are the flags that have a meaning for a recording.
var ofRecordings = []string{"machine", "topology-file", "config", "output", colour}

// runRecorded judges a recording, in which only the hardware is known.
func (x *examiner) runRecorded(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(ofRecordings, f.Name) {
			err = usage("--machine and --%s exclude each other", f.Name)
		}
	})
	if err != nil {
		return err
	}
	n, err := x.readMachine()
	if err != nil {
		return err
	}
	x.node.Recorded, x.node.GPUs = true, n.GPUDevices()
	if x.node.VFs, err = x.configuredVFs(n); err != nil {
		return err
	}
	if x.config == "" {
		x.node.Guess = "no --config"
	}
	return x.report(cmd)
}

// report examines the node and prints the findings.
func (x *examiner) report(cmd *cobra.Command) error {
	found := doctor.Examine(x.node)
	table := func() []byte {
		return slices.Concat(modeText(x.node.Mode), x.pools.text(), remarkText(found.Remark),
			doctor.Report(found.Findings))
	}
	if err := x.format.write(cmd, found, table); err != nil {
		return err
	}
	return verdict(found.Findings)
}

// modeText returns a note for a node in DRA mode, or nil.
func modeText(m mode.Mode) []byte {
	if m != mode.DRA {
		return nil
	}
	return []byte("This node is in DRA mode: the scheduler allocates devices, and the settings of the " +
		"kubelet's managers are not checked.\n\n")
}

func remarkText(remark string) []byte {
	if remark == "" {
		return nil
	}
	return []byte(remark + "\n\n")
}

// verdict returns the error for the exit code, or nil without findings.
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

// read reads the machine and the offered devices.
func (x *examiner) read(ctx context.Context) error {
	n, err := x.readMachine()
	if err != nil {
		return err
	}
	x.node.Mode, x.node.Notes = doctor.RunningMode(ctx, x.node.RunDir)
	for _, note := range x.node.Notes {
		if strings.HasPrefix(note, gpu.Unpublished) {
			x.node.NoGPUs = append(x.node.NoGPUs, note)
		}
	}
	x.node.Plugins = doctor.AskPlugins(ctx, x.node.RunDir, x.node.Sys, x.vendor)
	if x.node.VFs, x.node.Guess, err = x.readVFs(ctx, n); err != nil {
		return err
	}
	x.node.GPUs = n.GPUDevices()
	if x.refused == nil {
		x.node.Refused = doctor.AskRefused(ctx, x.node.KubeletDir)
	} else {
		x.node.Refused = doctor.CountedRefused(x.refused, x.node.ReadElsewhere)
	}
	return nil
}

// readMachine reads the machine from sysfs.
func (x *examiner) readMachine() (*machine.Node, error) {
	n, err := machine.Read(&x.from)
	if err != nil {
		return nil, err
	}
	x.node.Sys, x.node.Tree, x.node.Links = n.Sys, n.Tree, n.Links
	return n, nil
}

// readVFs returns the VFs of the configuration, or of the running tandem-rdma, or of all NICs with RDMA. The
// last case is a guess, and readVFs returns the reason.
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
	vfs, err = x.configuredVFs(n)
	return vfs, guess, err
}

// configuredVFs returns the VFs of the configuration, or of all NICs with RDMA.
func (x *examiner) configuredVFs(n *machine.Node) ([]doctor.Device, error) {
	vfs, notes, err := n.VFDevices(x.config, &x.from)
	if err == nil && x.config != "" {
		x.pools, err = newSelection(n, x.config, &x.from, notes)
	}
	return vfs, err
}

// fixer changes the kubelet's configuration.
type fixer struct {
	fix, rollback, last bool
	change              fix.Change
}

func (f *fixer) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.fix, "fix-kubelet", false, "show the settings that the kubelet lacks")
	flags.BoolVar(&f.change.Apply, "apply", false, "with --fix-kubelet: write the settings to "+fix.DropIn+
		" in the kubelet's folder of drop-ins")
	flags.BoolVar(&f.change.StaticCPUs, "static-cpus", false, "with --fix-kubelet: also set cpuManagerPolicy "+
		"static, and reserve a CPU of each NUMA node for the system unless CPUs are already reserved")
	flags.BoolVar(&f.rollback, "rollback-kubelet", false, "remove the file that --apply wrote")
	flags.BoolVar(&f.last, "last", false, "with --rollback-kubelet: undo only the last change of the file; "+
		"possible until the kubelet is well with the change")
	plainflag.Kubelet.PutRest(flags)
}

// run executes the flags; false without flags.
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
