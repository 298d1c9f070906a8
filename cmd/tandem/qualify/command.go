// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/topology/nccl"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// qualifier is the command line of qualify.
type qualifier struct {
	node   doctor.Node
	format cli.Output

	file, check, topology string
	verified              []string
	force                 bool
}

const exitCodes = `  3  a part failed
  4  no part failed, but evidence is missing
`

// NewCommand returns the command qualify.
func NewCommand() *cobra.Command {
	q := &qualifier{format: cli.OneOf(cli.AsTable, cli.AsJSON)}
	cmd := &cobra.Command{
		Use:   "qualify",
		Short: "Write the evidence of this node to one file, and judge the evidence",
		Long: `Write a report of this node that others can check and test with: the recorded machine (tandem record), the findings of tandem
doctor, the devices that the plugins offer, the placement of containers, and their verdicts. Run the command as root on a node on which
Tandem runs.

Two kinds of evidence come from other programs. --nccl-topology adds the topology that NCCL or RCCL has found on this node: a program of
theirs writes the file to the path in NCCL_TOPO_DUMP_FILE. --verified adds the output of "tandem verify --traffic -o json" in a pod of this
node; repeat the flag for several pods.

The report has no name of a host, pod, namespace or resource, no serial number, MAC address, GUID or UUID, and no text of a log or file:
addresses, numbers, versions, the model of the server, names of network interfaces and drivers, IDs of findings. The report is text: read
the file before you send it (docs/qualify.md). A command with --machine reads the machine in a report.

--check judges a report instead of this node, with the placement of this version.`,
		Example: `  sudo tandem qualify -f node.json
  sudo tandem qualify -f node.json --config /etc/pcidp/config.json --nccl-topology topo.xml --verified pod.json
  tandem qualify --check node.json
  tandem topo --machine node.json`,
		Args:        cli.NoArguments,
		Annotations: map[string]string{cli.MoreExitCodes: exitCodes},
		RunE:        func(cmd *cobra.Command, _ []string) error { return q.runQualify(cmd) },
	}
	flags := cmd.Flags()
	q.node.RegisterFlags(flags)
	flags.StringVar(&q.node.From.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	flags.StringVarP(&q.file, "file", "f", "", "file to write (default standard output)")
	flags.BoolVar(&q.force, "force", false, "overwrite the file")
	flags.StringVar(&q.topology, "nccl-topology", "",
		"topology by NCCL or RCCL on this node (NCCL_TOPO_DUMP_FILE)")
	flags.StringArrayVar(&q.verified, "verified", nil,
		`output of "tandem verify --traffic -o json" in a pod of this node; repeatable`)
	flags.StringVar(&q.check, "check", "", "report to judge")
	q.format.Register(cmd)
	return cmd
}

func (q *qualifier) runQualify(cmd *cobra.Command) error {
	if cmd.Flags().Changed("check") {
		return q.judgeReport(cmd)
	}
	if cmd.Flags().Changed("output") {
		return cli.NewUsageError("--output belongs to --check: without --check the report is JSON")
	}
	report, err := q.collectEvidence(cmd)
	if err != nil {
		return err
	}
	if err := cli.WriteNew(report, q.file, q.force, cmd.OutOrStdout()); err != nil {
		return err
	}
	if q.file == "" { // standard output is the report
		_, err = fmt.Fprint(cmd.ErrOrStderr(), report.Table())
	} else {
		err = q.format.Show(cmd, report.Table())
	}
	if err != nil {
		return err
	}
	return worstVerdict(report)
}

// judgeReport judges a report.
func (q *qualifier) judgeReport(cmd *cobra.Command) (err error) {
	if err := cli.RefuseFlags(cmd, "check", "check", "output", cli.Colour); err != nil {
		return err
	}
	var report *Report
	err = readFile(q.check, func(file io.Reader) (err error) {
		report, err = Read(file)
		return err
	})
	if err != nil {
		return err
	}
	if err := report.Judge(); err != nil {
		return fmt.Errorf("judge %s: %w", q.check, err)
	}
	if err := q.format.Write(cmd, report.Results, report.Table); err != nil {
		return err
	}
	return worstVerdict(report)
}

// worstVerdict returns the error for the exit code, nil if all parts passed.
func worstVerdict(report *Report) error {
	switch report.Worst() {
	case failed:
		return cli.FoundError(cli.ExitFound)
	case incomplete:
		return cli.FoundError(cli.ExitUnknown)
	default:
		return nil
	}
}

// collectEvidence reads all evidence of this node.
func (q *qualifier) collectEvidence(cmd *cobra.Command) (*Report, error) {
	e := evidence{Tandem: version.Text()}
	if err := q.readFiles(&e); err != nil {
		return nil, err
	}
	if err := q.node.Read(cmd.Context()); err != nil {
		return nil, err
	}
	e.System = readSystem(q.node.From.SysfsRoot, q.node.ProcRoot)
	e.Findings, e.Choices = doctor.Examine(q.node).Findings, q.node.Pools.Choices
	e.Status = q.node.Status()
	var err error
	e.Machine, err = recording.Capture(q.node.Sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", q.node.From.SysfsRoot, err)
	}
	return newReport(e)
}

// readFiles reads the evidence of other programs.
func (q *qualifier) readFiles(e *evidence) (err error) {
	if q.topology != "" {
		e.NCCL, err = nccl.Load(q.topology)
		if err != nil {
			return err
		}
	}
	for _, name := range q.verified {
		var v verify.Verification
		err := readFile(name, func(file io.Reader) error { return json.NewDecoder(file).Decode(&v) })
		if err != nil {
			return err
		}
		e.Verified = append(e.Verified, &v)
	}
	return nil
}

// readFile reads a file of a flag.
func readFile(name string, read func(io.Reader) error) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read file: %w", err)
	}
	defer file.Close()
	if err := read(file); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
