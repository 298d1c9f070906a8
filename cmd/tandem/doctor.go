// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// examiner is the command line of doctor.
type examiner struct {
	from   machine.Source
	node   doctor.Node
	config string // of the VFs
	vendor string // --vendor of tandem-gpu
	format cli.Output
	pools  selection // of config
	dropIn bool      // print the settings that the kubelet needs
	static bool      // also for exclusive CPUs

	refused doctor.RefusedPods // of the node; nil: by the kubelet
}

const doctorExitCodes = `  3  errors or warnings found
  4  no error or warning, but unknown results
`

func newDoctor() *cobra.Command {
	x := examiner{format: cli.OneOf(cli.AsTable, cli.AsJSON).Judging(doctorVerdicts)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems that prevent GPUs and VFs on the same switch on this node",
		Long: `Check this node's hardware, the kubelet's configuration and state, and the plugins' sockets for problems that prevent pods with
GPUs and VFs on one switch. Each finding has an observation, its effect and a remedy. Run the command as root on the node, or in a
debug container with the node's PID namespace. The command changes nothing.

--drop-in prints the settings that the kubelet needs on this node as a file for its folder of drop-ins (--config-dir), and with
--static-cpus also exclusive CPUs for containers. Comments in the file describe where the settings belong on nodes of kubeadm, Ansible,
machine configurations and providers. Save the output outside that folder and move the file there: a shell creates an empty file before
the command runs, and the kubelet does not start with an empty one.

The shapes of container requests are judged for an empty node with the kubelet's own rules. The VFs are those of --config
(config.json), or without --config those of the running tandem-rdma, or of the only configuration of VFs among the ConfigMaps of this
node's pods, as of the SR-IOV network device plugin. If none exists, the VFs are all VFs of NICs with RDMA, each with its NUMA node, and
the verdict is only an estimate. The policy is the one that the command recommends, restricted, also before the kubelet has it.

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
  tandem doctor --drop-in
  tandem doctor --drop-in --static-cpus
  tandem doctor --machine my-machine.txt
  kubectl debug node/NODE -it --profile=sysadmin --image=ghcr.io/tandem-k8s/tandem:VERSION -- \
    tandem doctor --dev-root=/host/dev --kubelet-dir=/host/var/lib/kubelet --run-dir=/host/run/tandem`,
		Args:        cli.NoArguments,
		Annotations: map[string]string{cli.MoreExitCodes: doctorExitCodes},
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
	plainflag.Choice(flags, &x.vendor, "gpu-vendor", "auto", "value of --vendor of this node's tandem-gpu, to "+
		"recognize GPUs of another vendor", append(gpu.Names(), "auto")...)
	flags.BoolVar(&x.dropIn, "drop-in", false, "print the settings that the kubelet needs, as a drop-in")
	flags.BoolVar(&x.static, "static-cpus", false, "with --drop-in: also set cpuManagerPolicy static, and "+
		"reserve a CPU of each NUMA node for the system unless CPUs are already reserved")
	flags.StringVar(&x.node.ReadElsewhere, "read-elsewhere", "", "name of this node in a report that is read "+
		"elsewhere, as by kubectl tandem doctor: --kubelet-config is the kubelet's configz")
	x.format.Register(cmd)
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
		"to select VFs (default the VFs that the running tandem-rdma offers, or of the ConfigMap of a pod)")
}

func (x *examiner) run(cmd *cobra.Command) error {
	if !x.from.Live() {
		return x.runRecorded(cmd)
	}
	if x.node.CPUs < 0 {
		return cli.Usage("--cpus %d: want 0 or more", x.node.CPUs)
	}
	if x.static && !x.dropIn {
		return cli.Usage("--static-cpus belongs to --drop-in")
	}
	x.complete()
	if x.dropIn {
		return x.printDropIn(cmd)
	}
	if err := x.read(cmd.Context()); err != nil {
		return err
	}
	return x.report(cmd)
}

// printDropIn prints the settings that the kubelet needs.
func (x *examiner) printDropIn(cmd *cobra.Command) error {
	if _, err := x.readMachine(); err != nil {
		return err
	}
	x.node.Ask(cmd.Context(), x.vendor)
	text, err := x.node.DropIn(x.static)
	if err == nil {
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	}
	return err
}

// complete completes the places of the node that no flag has.
func (x *examiner) complete() {
	if x.node.KubeletDir == "" {
		x.node.KubeletDir = doctor.KubeletDir(x.node.ProcRoot)
	}
	if x.node.RunDir == "" {
		x.node.RunDir = coordination.FindRunDir(x.node.KubeletDir)
	}
	x.node.Now, x.node.CDIDir = time.Now(), coordination.CDIDir
}

// ofRecordings are the flags that have a meaning for a recording.
var ofRecordings = []string{"machine", "topology-file", "config", "output", cli.Colour}

// runRecorded judges a recording, in which only the hardware is known.
func (x *examiner) runRecorded(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(ofRecordings, f.Name) {
			err = cli.Usage("--machine and --%s exclude each other", f.Name)
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
		remark := []byte(found.Remark)
		if len(remark) > 0 {
			remark = append(remark, "\n\n"...)
		}
		return slices.Concat(modeText(x.node.Mode), x.pools.text(), remark, doctor.Report(found.Findings))
	}
	if err := x.format.Write(cmd, found, table); err != nil {
		return err
	}
	return verdict(found.Findings)
}

// modeText returns a note for a node in DRA mode, or nil.
func modeText(m coordination.Mode) []byte {
	if m != coordination.DRA {
		return nil
	}
	return []byte("This node is in DRA mode: the scheduler allocates devices, and the settings of the " +
		"kubelet's managers are not checked.\n\n")
}

// verdict returns the error for the exit code, or nil without findings.
func verdict(findings []doctor.Finding) error {
	known := func(f doctor.Finding) bool { return f.Severity != doctor.Unknown }
	switch {
	case slices.ContainsFunc(findings, known):
		return cli.FoundError(exitFound)
	case len(findings) > 0:
		return cli.FoundError(exitUnknown)
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
	x.node.Ask(ctx, x.vendor)
	if x.node.VFs, x.node.Guess, err = x.readVFs(ctx, n); err != nil {
		return err
	}
	x.node.GPUs = n.GPUDevices()
	if x.refused.String() == "" {
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
		vfs, err := x.node.RunningVFs(ctx)
		if err == nil {
			return vfs, "", nil
		}
		guess = "no --config, and " + err.Error()
		vfs, err = x.mountedVFs(n)
		if err == nil && x.node.Mounted != "" {
			return vfs, "", nil
		}
		if err != nil {
			guess += ", and " + err.Error()
		}
	}
	vfs, err = x.configuredVFs(n)
	return vfs, guess, err
}

// mountedVFs returns the VFs of a ConfigMap that the kubelet has mounted for a pod, none without one.
func (x *examiner) mountedVFs(n *machine.Node) (vfs []doctor.Device, err error) {
	x.config, err = doctor.MountedConfig(x.node.KubeletDir, strings.ToLower(x.from.Title()))
	if err != nil || x.config == "" {
		return nil, err
	}
	vfs, err = x.configuredVFs(n)
	if err != nil {
		x.config = ""
	}
	x.node.Mounted = x.config
	return vfs, err
}

// configuredVFs returns the VFs of the configuration, or of all NICs with RDMA.
func (x *examiner) configuredVFs(n *machine.Node) ([]doctor.Device, error) {
	if !x.node.Recorded {
		n.Kubelet = x.node.Settings()
	}
	vfs, notes, err := n.VFDevices(x.config, &x.from)
	if err == nil && x.config != "" {
		x.pools, err = newSelection(n, x.config, &x.from, notes)
	}
	return vfs, err
}
