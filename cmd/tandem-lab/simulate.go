// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/test/simulate"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// simulator is the command line of simulate.
type simulator struct {
	source machine.Source
	preset string
	vfs    int
	policy string
	mix    string
	ways   []string
	output cli.Output
	config simulate.Config
}

func newSimulate() *cobra.Command {
	s := simulator{output: cli.OneOf(cli.AsTable, cli.AsJSON)}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Compare placement strategies on random containers",
		Long: `Simulate the arrival and the end of random containers on a node, with the kubelet's admission rules, under several placement
strategies for GPUs and VFs. All strategies get the same arrivals. The output shows the GPUs with a VF on their own switch,
the rejected containers, and the remaining free devices, with 95 % confidence intervals over the seeds.

The strategies of --ways have these titles in the table:
` + aboutWays() + `
The node is one of three common servers or a recorded machine:
` + aboutPresets(),
		Example: `  tandem-lab simulate
  tandem-lab simulate --node B --vfs-per-pf 1 --load 60
  tandem-lab simulate --machine test/machines/nv-h100-aws-p5.txt --policy best-effort -o json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.register(cmd)
	return cmd
}

func aboutWays() string {
	var b strings.Builder
	for _, way := range simulate.Ways() {
		fmt.Fprintf(&b, "  %-14s  %s\n", way.Name, way.Title)
	}
	return b.String()
}

func aboutPresets() string {
	var b strings.Builder
	for _, name := range simulate.Presets() {
		fmt.Fprintf(&b, "  %s  %s\n", name, simulate.AboutPreset(name))
	}
	return strings.TrimRight(b.String(), "\n")
}

func (s *simulator) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	c := &s.config
	flags.StringVar(&s.preset, "node", "A", "node to simulate: "+strings.Join(simulate.Presets(), ", "))
	flags.StringVar(&s.source.Recording, "machine", "",
		"recorded machine to simulate instead of --node, a file of tandem record or tandem qualify")
	flags.IntVar(&s.vfs, "vfs-per-pf", 8, "number of VFs on each PF without recorded VFs")
	policies := []string{
		string(model.Restricted), string(model.BestEffort), string(model.SingleNUMANode), string(model.PolicyNone),
	}
	plainflag.Choice(flags, &s.policy, "policy", policies[0],
		"Topology Manager policy of the kubelet: "+spelling.List(policies), policies...)
	flags.BoolVar(&c.ExcludeTopology, "exclude-topology", false,
		"announce VFs without NUMA nodes (excludeTopology)")
	c.Loads = []float64{30, 60, 90}
	flags.Var(&numbers{list: &c.Loads}, "load",
		"percentages of GPUs allocated with the stock plugins")
	flags.StringVar(&s.mix, "mix", simulate.DefaultMix,
		"requests of the containers as GPUs+VFs[:WEIGHT], such as 1+1:3; the default weight is 1")
	flags.StringSliceVar(&s.ways, "ways", nil,
		"placement strategies: "+strings.Join(simulate.WayNames(), ", ")+" (default all)")
	flags.Float64Var(&c.GPUFirst, "gpu-first", 0.5,
		"probability that the kubelet allocates the GPUs before the VFs")
	flags.IntVar(&c.Seeds, "seeds", 150, "number of random streams of arrivals")
	flags.IntVar(&c.Arrivals, "arrivals", 1000, "number of counted arrivals of a stream")
	flags.IntVar(&c.Warmup, "warmup", 200, "number of arrivals before the first counted arrival")
	flags.Uint64Var(&c.Seed, "seed", 1, "first seed of the random numbers; the same seed gives the same result")
	s.output.Register(cmd)
	cli.CompleteMachines(cmd)
	cli.CompleteFlag(cmd, "node", cli.FixedValues(simulate.Presets()...))
	cli.CompleteFlag(cmd, "policy", cli.FixedValues(policies...))
	cli.CompleteFlag(cmd, "ways", cli.FixedValues(simulate.WayNames()...))
}

func (s *simulator) run(cmd *cobra.Command) error {
	if cmd.Flags().Changed("machine") && cmd.Flags().Changed("node") {
		return cli.NewUsageError("--machine and --node exclude each other")
	}
	if err := s.parse(); err != nil {
		return cli.NewUsageError("%w", err)
	}
	var err error
	s.config.Node, err = s.node()
	if err != nil {
		return err
	}
	done := showProgress(cmd.ErrOrStderr(), &s.config.Progress)
	report, err := simulate.Run(cmd.Context(), s.config)
	done()
	if err != nil {
		return err
	}
	return s.output.Write(cmd, report, report.Table)
}

// parse parses the textual flags, and checks all flags before anything is read.
func (s *simulator) parse() (err error) {
	c := &s.config
	c.Policy, err = model.ParsePolicy(s.policy)
	if err != nil {
		return err
	}
	c.Mix, err = simulate.ParseMix(s.mix)
	if err != nil {
		return err
	}
	c.Ways, err = simulate.FindWays(s.ways)
	if err != nil {
		return err
	}
	if simulate.AboutPreset(s.preset) == "" {
		return fmt.Errorf("node %q: want %s", s.preset, spelling.List(simulate.Presets()))
	}
	if s.vfs < 0 {
		return fmt.Errorf("%d VFs per PF are too few", s.vfs)
	}
	return c.Check()
}

// node returns the node: a preset, or a recorded machine with its GPUs and the VFs of its RDMA NICs. A PF
// that was recorded with VFs gets no further VFs.
func (s *simulator) node() (*simulate.Node, error) {
	if s.source.IsLive() {
		return simulate.NewPreset(s.preset, s.vfs)
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
		added, err := simulate.NewVFs(pf.Address, s.vfs)
		if err != nil {
			return nil, fmt.Errorf("simulate %s: %w", s.source.Name(), err)
		}
		vfs = append(vfs, added...)
	}
	return simulate.New(s.source.Name(), n.Tree, gpus, vfs, n.Links)
}

// numbers is a flag with comma-separated numbers. Repeated flags add up.
type numbers struct {
	list  *[]float64
	given bool
}

// String implements pflag.Value.
func (n *numbers) String() string {
	texts := make([]string, len(*n.list))
	for i, number := range *n.list {
		texts[i] = strconv.FormatFloat(number, 'g', -1, 64)
	}
	return strings.Join(texts, ",")
}

// Set implements pflag.Value.
func (n *numbers) Set(text string) error {
	var list []float64
	for part := range strings.SplitSeq(text, ",") {
		number, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil {
			return err
		}
		list = append(list, number)
	}
	if n.given {
		list = append(*n.list, list...)
	}
	*n.list, n.given = list, true
	return nil
}

// Type implements pflag.Value.
func (n *numbers) Type() string { return "numbers" }

// progressEvery is the interval between two lines about a long simulation.
const progressEvery = 20 * time.Second

// showProgress shows the progress of a simulation until done is called: a bar on a terminal, elsewhere a line
// every 20 seconds. It sets the function that receives the number of finished trials.
func showProgress(w io.Writer, progress *func(done, all int)) (done func()) {
	if out, ok := w.(*cli.PrintableWriter); ok {
		if _, ok := out.Terminal(); ok {
			return drawProgress(out, progress)
		}
	}
	ticker := time.NewTicker(progressEvery)
	end := writeProgress(w, progress, ticker.C)
	return func() {
		ticker.Stop()
		end()
	}
}

// drawProgress draws a bar, from the start on: trials may take long. done removes the bar.
func drawProgress(terminal *cli.PrintableWriter, progress *func(done, all int)) (done func()) {
	const width = 40
	shown := -1
	draw := func(done, all int) {
		if percent := 100 * done / all; percent != shown {
			shown = percent
			filled := width * done / all
			terminal.WriteControl("\r")
			fmt.Fprintf(terminal, "%s%s %3d %%", strings.Repeat("█", filled), strings.Repeat("░", width-filled),
				percent)
		}
	}
	draw(0, 1)
	*progress = draw
	return func() { terminal.WriteControl("\r" + strings.Repeat(" ", width+6) + "\r") }
}

// writeProgress writes a line at every tick.
func writeProgress(w io.Writer, progress *func(done, all int), ticks <-chan time.Time) (done func()) {
	var latest atomic.Value
	latest.Store("no trial has ended yet")
	*progress = func(done, all int) { latest.Store(fmt.Sprintf("%d of %d trials", done, all)) }
	start, end := time.Now(), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-end:
				return
			case now := <-ticks:
				fmt.Fprintf(w, "... %.0f s: %s\n", now.Sub(start).Seconds(), latest.Load())
			}
		}
	})
	return func() {
		close(end)
		writer.Wait()
	}
}
