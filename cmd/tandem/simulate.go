// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/printable"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/cluster"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// simulate is the command line of tandem simulate.
type simulate struct {
	source machine.Source
	preset string
	vfs    int
	policy string
	mix    string
	ways   []string
	svg    string
	output output
	config simulation.Config

	nodes      int // 0 for a single node
	schedulers []string
	burst      int
}

func newSimulate() *cobra.Command {
	s := simulate{output: oneOf(asTable, asJSON)}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Compare ways of choosing on random containers that come and go",
		Long: `Simulate plays random containers that come to a node and leave it again, with the kubelet's rules of admission, under several
ways of choosing their GPUs and VFs. All ways get the same arrivals. It tells how many GPUs get a VF of their own on their
switch, how many containers are refused, and what is left, with 95 % confidence intervals over the seeds.

With --nodes it plays a cluster of such nodes, under several schedulers: the kubelet of the node that a scheduler chooses may refuse
the pod, and its job makes another one. It tells what each scheduler costs in refusals, pairs and waiting. Devices are chosen there as
Tandem does, or as the one of --ways says.

The node is one of three common servers or a recorded machine:
` + aboutPresets(),
		Example: `  tandem simulate
  tandem simulate --node B --vfs-per-pf 1 --load 60 --svg node-b.svg
  tandem simulate --machine test/machines/nv-h100-aws-p5.txt --policy best-effort -o json
  tandem simulate --nodes 100 --vfs-per-pf 1 --load 60,90
  tandem simulate --nodes 100 --vfs-per-pf 1 --load 90 --burst 16 --schedulers least,most,tandem --ways stock`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.register(cmd)
	return cmd
}

func aboutPresets() string {
	var b strings.Builder
	for _, name := range world.Presets() {
		fmt.Fprintf(&b, "  %s  %s\n", name, world.AboutPreset(name))
	}
	return strings.TrimRight(b.String(), "\n")
}

func (s *simulate) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	c := &s.config
	flags.StringVar(&s.preset, "node", "A", "node to simulate: "+strings.Join(world.Presets(), ", "))
	flags.StringVar(&s.source.Recording, "machine", "",
		"recorded machine to simulate instead, a file that tandem record wrote")
	flags.IntVar(&s.vfs, "vfs-per-pf", 8, "VFs on each PF that was not recorded with any")
	flags.StringVar(&s.policy, "policy", string(hints.Restricted),
		"the kubelet's Topology Manager policy: restricted, best-effort, single-numa-node or none")
	flags.BoolVar(&c.ExcludeTopology, "exclude-topology", false,
		"announce VFs without NUMA nodes (excludeTopology)")
	c.Loads = []float64{30, 60, 90}
	flags.Var(&numbers{list: &c.Loads}, "load",
		"shares of the GPUs allocated with the stock pair, in percent; with --nodes, of all GPUs asked for")
	flags.StringVar(&s.mix, "mix", world.DefaultMix,
		"what containers ask for, GPUs+VFs, with a weight where it is not 1, as in 1+1:3")
	flags.StringSliceVar(&s.ways, "ways", nil,
		"ways of choosing: "+strings.Join(simulation.WayNames(), ", ")+" (default all)")
	flags.Float64Var(&c.GPUFirst, "gpu-first", 0.5,
		"probability that the kubelet asks for the GPUs before the VFs")
	flags.IntVar(&s.nodes, "nodes", 0, "play a cluster of so many nodes")
	flags.StringSliceVar(&s.schedulers, "schedulers", nil,
		"with --nodes: who chooses the node: "+strings.Join(cluster.SchedulerNames(), ", ")+" (default all)")
	flags.IntVar(&s.burst, "burst", 1, "with --nodes: equal pods that come at once")
	flags.IntVar(&c.Seeds, "seeds", 150, "streams of arrivals; with --nodes the default is 4")
	flags.IntVar(&c.Arrivals, "arrivals", 1000,
		"arrivals of a stream that count; with --nodes the default is 5000")
	flags.IntVar(&c.Warmup, "warmup", 200, "arrivals of a stream before that; with --nodes the default is 1000")
	flags.Uint64Var(&c.Seed, "seed", 1, "where random numbers start; the same seed gives the same result")
	flags.StringVar(&s.svg, "svg", "", "file to draw a chart into")
	s.output.register(cmd)
	completeMachines(cmd)
	complete(cmd, "node", fixed(world.Presets()...))
	complete(cmd, "policy", fixed(string(hints.Restricted), string(hints.BestEffort), string(hints.None)))
	complete(cmd, "ways", fixed(simulation.WayNames()...))
}

func (s *simulate) run(cmd *cobra.Command) error {
	if cmd.Flags().Changed("machine") && cmd.Flags().Changed("node") {
		return usage("--machine and --node exclude each other")
	}
	if s.nodes > 0 || cmd.Flags().Changed("nodes") {
		return s.runCluster(cmd)
	}
	for _, flag := range []string{"schedulers", "burst"} {
		if cmd.Flags().Changed(flag) {
			return usage("--%s is for a cluster: give --nodes too", flag)
		}
	}
	if err := s.parse(); err != nil {
		return usageError{err}
	}
	var err error
	if s.config.Node, err = s.node(); err != nil {
		return err
	}
	done := showProgress(cmd.ErrOrStderr(), &s.config.Progress)
	report, err := simulation.Run(cmd.Context(), s.config)
	done()
	if err != nil {
		return err
	}
	if s.svg != "" {
		if err := os.WriteFile(s.svg, []byte(printable.Lines(string(report.SVG()))), 0o644); err != nil {
			return fmt.Errorf("draw chart: %w", err)
		}
	}
	return s.output.write(cmd.OutOrStdout(), report, report.Table)
}

// parse parses the textual flags, and checks all flags before anything is read.
func (s *simulate) parse() (err error) {
	c := &s.config
	if c.Policy, err = hints.ParsePolicy(s.policy); err != nil {
		return err
	}
	if c.Mix, err = world.ParseMix(s.mix); err != nil {
		return err
	}
	if c.Ways, err = simulation.FindWays(s.ways); err != nil {
		return err
	}
	if s.vfs < 0 {
		return fmt.Errorf("%d VFs per PF are too few", s.vfs)
	}
	return c.Check()
}

// node returns the node: a preset, or a recorded machine with its GPUs and the VFs of its RDMA NICs. A PF
// that was recorded with VFs gets no further VFs.
func (s *simulate) node() (*world.Node, error) {
	if s.source.Live() {
		return world.NewPreset(s.preset, s.vfs)
	}
	n, err := machine.Read(&s.source)
	if err != nil {
		return nil, err
	}
	var gpus, vfs []placement.Device
	for _, d := range n.GPUDevices() {
		gpus = append(gpus, d.Device)
	}
	for _, pf := range n.RDMANICs() {
		for _, a := range pf.VFs {
			vfs = append(vfs, placement.Device{ID: a.String(), Address: a})
		}
		if len(pf.VFs) > 0 {
			continue
		}
		added, err := world.NewVFs(pf.Address, s.vfs)
		if err != nil {
			return nil, fmt.Errorf("simulate %s: %w", s.source.Name(), err)
		}
		vfs = append(vfs, added...)
	}
	return world.New(s.source.Name(), n.Tree, gpus, vfs, n.Links)
}

// showProgress draws a progress bar while the simulation runs, if w is a terminal. done removes the bar.
func showProgress(w io.Writer, progress *func(done, all int)) (done func()) {
	terminal, ok := w.(*printable.Writer)
	if !ok {
		return func() {}
	}
	if _, ok := terminal.Terminal(); !ok {
		return func() {}
	}
	const width = 40
	shown := -1
	*progress = func(done, all int) {
		if percent := 100 * done / all; percent != shown {
			shown = percent
			filled := width * done / all
			terminal.Control("\r")
			fmt.Fprintf(w, "%s%s %3d %%", strings.Repeat("█", filled), strings.Repeat("░", width-filled), percent)
		}
	}
	return func() { terminal.Control("\r" + strings.Repeat(" ", width+6) + "\r") }
}
