package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
)

// examiner is the command line of doctor.
type examiner struct {
	from   source
	node   doctor.Node
	config string // of the VFs
	format output
	fix    fixer
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
the node, or in a debug container. It changes nothing; --fix-kubelet patches the kubelet's configuration, or writes a file of its
own into the kubelet's folder of drop-ins where it has one (--config-dir), and even that only shows the difference until --apply is given too.

Request shapes are judged for an empty node by the kubelet's own rules, for the VFs that config.json selects (--config) and as it
offers them; without it for those that the running tandem-rdma offers. Where none runs they are those of all NICs with RDMA, each
with its NUMA node, and the verdict is a guess.

What may not be read is said, and is not taken for damage. It needs root's rights for all that it looks at.`,
		Example: `  tandem doctor
  tandem doctor --config /etc/pcidp/config.json --cpus 16 -o json
  tandem doctor --fix-kubelet
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
	flags.StringVar(&x.from.sysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	flags.StringVar(&x.node.DevRoot, "dev-root", "/dev", "folder with the device nodes")
	flags.StringVar(&x.node.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's root folder")
	flags.StringVar(&x.node.RunDir, "run-dir", "/run/tandem", "the plugins' --run-dir")
	flags.StringVar(&x.node.ProcRoot, "proc-root", "/proc", "folder where the running kubelet's command line is")
	flags.StringVar(&x.node.Config, "kubelet-config", "", "the kubelet's configuration (default what its command line says, or config.yaml in --kubelet-dir)")
	flags.StringVar(&x.node.ConfigDir, "kubelet-config-dir", "", "folder with drop-ins of that configuration (default what its command line says)")
	registerTopologyFile(flags, &x.from.topologyFile)
	flags.StringVar(&x.config, "config", "", "config.json of the SR-IOV network device plugin, to select VFs (default those that the running tandem-rdma offers)")
	flags.IntVar(&x.node.CPUs, "cpus", 0, "whole CPUs that containers ask for beside GPUs and VFs")
	flags.VarP(&x.format, "output", "o", x.format.usage())
	x.fix.register(flags)
}

func (x *examiner) run(cmd *cobra.Command) error {
	if x.node.CPUs < 0 {
		return usage("--cpus %d: want 0 or more", x.node.CPUs)
	}
	if done, err := x.fix.run(cmd, x); done || err != nil {
		return err
	}
	if err := x.read(cmd.Context()); err != nil {
		return err
	}
	findings := doctor.Examine(x.node)
	if x.format.format == asJSON {
		if findings == nil {
			findings = []doctor.Finding{}
		}
		if err := writeJSON(cmd.OutOrStdout(), findings); err != nil {
			return err
		}
	} else if _, err := cmd.OutOrStdout().Write(report(findings)); err != nil {
		return err
	}
	return verdict(findings)
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

// report is for people.
func report(findings []doctor.Finding) []byte {
	var out bytes.Buffer
	counts := map[doctor.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		fmt.Fprintf(&out, "%s %s: %s\n", strings.ToUpper(string(f.Severity)), f.ID, f.Summary)
		for _, seen := range f.Evidence {
			fmt.Fprintf(&out, "  seen  %s\n", seen)
		}
		fmt.Fprintf(&out, "  why   %s\n", f.Why)
		for _, fix := range f.Fix {
			fmt.Fprintf(&out, "  fix   %s\n", fix)
		}
		out.WriteByte('\n')
	}
	if len(findings) == 0 {
		out.WriteString("Nothing stands between this node and GPUs and VFs on the same switch.\n")
		return out.Bytes()
	}
	fmt.Fprintf(&out, "%d found: errors %d, warnings %d, unknown %d\n", len(findings), counts[doctor.Error], counts[doctor.Warning], counts[doctor.Unknown])
	return out.Bytes()
}
