// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// examiner is the command line of doctor.
type examiner struct {
	node   Node
	format cli.Output
	dropIn bool // print the settings that the kubelet needs
	static bool // also for exclusive CPUs
}

// ExitCodes are additional exit codes, for the help text.
const ExitCodes = `  3  errors or warnings found
  4  no error or warning, but unknown results
`

// NewCommand returns the command doctor.
func NewCommand() *cobra.Command {
	x := examiner{format: cli.OneOf(cli.AsTable, cli.AsJSON)}
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
node's pods, as of the SR-IOV network device plugin. If none exists, the VFs are all VFs of NICs with RDMA, in one pool without
excludeTopology, and the verdict is only an estimate. The policy is the one that the command recommends, restricted, also before the
kubelet has it.

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
		Annotations: map[string]string{cli.MoreExitCodes: ExitCodes},
		RunE:        func(cmd *cobra.Command, _ []string) error { return x.runDoctor(cmd) },
	}
	x.registerFlags(cmd)
	return cmd
}

func (x *examiner) registerFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	x.node.From.RegisterFlags(cmd)
	x.node.RegisterFlags(flags)
	flags.IntVar(&x.node.CPUs, "cpus", 0, "exclusive CPUs that containers request in addition to "+
		"GPUs and VFs, with cpuManagerPolicy static")
	flags.Var(&x.node.Counted, "refused-pods", "number of pods of this node that were rejected with "+
		"TopologyAffinityError, optionally with their requests, as in 2:amd.com/gpu=2,tandem.dev/rdma_vf=2,cpu=8; "+
		"repeatable (default the kubelet's own list, with Kubernetes 1.37 and later)")
	plainflag.Choice(flags, &x.node.Vendor, "gpu-vendor", "auto", "value of --vendor of this node's "+
		"tandem-gpu, to recognize GPUs of another vendor", append(gpu.Names(), "auto")...)
	flags.BoolVar(&x.dropIn, "drop-in", false, "print the settings that the kubelet needs, as a drop-in")
	flags.BoolVar(&x.static, "static-cpus", false, "with --drop-in: also set cpuManagerPolicy static, and "+
		"reserve a CPU of each NUMA node for the system unless CPUs are already reserved")
	flags.StringVar(&x.node.ReadElsewhere, "read-elsewhere", "", "name of this node in a report that is read "+
		"elsewhere, as by kubectl tandem doctor: --kubelet-config is the kubelet's configz")
	x.format.Register(cmd)
}

func (x *examiner) runDoctor(cmd *cobra.Command) error {
	switch recorded := !x.node.From.IsLive(); {
	case recorded:
		if err := cli.RefuseFlags(cmd, "machine", ofRecordings...); err != nil {
			return err
		}
	case x.node.CPUs < 0:
		return cli.NewUsageError("--cpus %d: want 0 or more", x.node.CPUs)
	case x.static && !x.dropIn:
		return cli.NewUsageError("--static-cpus belongs to --drop-in")
	case x.dropIn:
		text, err := x.node.ReadDropIn(cmd.Context(), x.static)
		if err == nil {
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		}
		return err
	}
	if err := x.node.Read(cmd.Context()); err != nil {
		return err
	}
	found := Examine(x.node)
	if err := x.format.Write(cmd, found, func() *cli.Text { return x.reportText(found) }); err != nil {
		return err
	}
	return exitError(found.Findings)
}

// ofRecordings are the flags that have a meaning for a recording.
var ofRecordings = []string{"machine", "topology-file", "config", "output", cli.Colour}

// reportText returns a report for people.
func (x *examiner) reportText(found Findings) *cli.Text {
	var out cli.Text
	if x.node.Mode == coordination.DRA {
		fmt.Fprint(&out, "This node is in DRA mode: the scheduler allocates devices, and the settings of the "+
			"kubelet's managers are not checked.\n\n")
	}
	x.node.Pools.writeTo(&out)
	if found.Remark != "" {
		fmt.Fprintf(&out, "%s\n\n", found.Remark)
	}
	writeFindings(&out, found.Findings)
	return &out
}

// exitError returns the error for the exit code, or nil without findings.
func exitError(findings []Finding) error {
	known := func(f Finding) bool { return f.Severity != Unknown }
	switch {
	case slices.ContainsFunc(findings, known):
		return cli.FoundError(cli.ExitFound)
	case len(findings) > 0:
		return cli.FoundError(cli.ExitUnknown)
	default:
		return nil
	}
}

// RegisterFlags adds the flags with the places of the node's files.
func (n *Node) RegisterFlags(flags *pflag.FlagSet) {
	flags.StringVar(&n.DevRoot, "dev-root", "/dev", "folder of the device nodes")
	flags.StringVar(&n.KubeletDir, "kubelet-dir", "",
		"root folder of the kubelet (default from the kubelet's command line, or "+kubelet.DefaultDir+")")
	cli.RegisterRunDir(flags, &n.RunDir)
	flags.StringVar(&n.ProcRoot, "proc-root", "/proc",
		"root of procfs, to find the running kubelet's command line")
	flags.StringVar(&n.Config, "kubelet-config", "",
		"kubelet configuration file (default from the kubelet's command line, or config.yaml in --kubelet-dir)")
	flags.StringVar(&n.ConfigDir, "kubelet-config-dir", "",
		"folder of the kubelet's configuration drop-ins (default from the kubelet's command line)")
	flags.StringVar(&n.PoolsFile, "config", "", "config.json of the SR-IOV network device plugin, "+
		"to select VFs (default the VFs that the running tandem-rdma offers, or of the ConfigMap of a pod)")
}
