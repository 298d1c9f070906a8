// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

func config(t testing.TB, preset string, vfs int) Config {
	t.Helper()
	n, err := world.NewPreset(preset, vfs)
	if err != nil {
		t.Fatal(err)
	}
	mix, err := world.ParseMix(world.DefaultMix)
	if err != nil {
		t.Fatal(err)
	}
	way, err := simulation.FindWays([]string{"tandem"})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Node: n, Nodes: 20, Rules: world.Rules{Policy: hints.Restricted}, Mix: mix, Loads: []float64{90}, Burst: 1,
		GPUFirst: 0.5, Choose: way[0].Prefer, Schedulers: Schedulers(), Seed: 1, Seeds: 2,
		Warmup: 200, Arrivals: 600,
	}
}

// A scheduler with the kubelet's verdict is never refused; the others are.
func TestWhoKnowsTheVerdictIsNotRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		preset string
		vfs    int
		burst  int
	}{{"A", 1, 1}, {"A", 4, 16}, {"B", 2, 1}, {"C", 1, 4}} {
		config := config(t, c.preset, c.vfs)
		config.Burst = c.burst
		r, err := Run(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Loads[0].Schedulers {
			knows := s.Name == "exact" || s.Name == "tandem"
			if got := s.Figures.Refusals.Mean; knows == (got > 0) && s.Name != "numa" {
				t.Errorf("%s, %d VFs per PF, bursts of %d: %s is refused %g times per job",
					c.preset, c.vfs, c.burst, s.Name, got)
			}
		}
	}
}

// The pair-aware choice makes the most pairs.
func TestTandemSchedulerMakesMostPairs(t *testing.T) {
	t.Parallel()
	c := config(t, "A", 1)
	c.Arrivals = 2000
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all := r.Loads[0].Schedulers
	for _, s := range all[:len(all)-1] {
		if s.Figures.PIX.Mean > all[len(all)-1].Figures.PIX.Mean {
			t.Errorf("%s has %s %% of pairs on one switch, tandem %s", s.Name, s.Figures.PIX,
				all[len(all)-1].Figures.PIX)
		}
	}
}

// A report depends on the configuration alone, and has the same content for people and for programs.
func TestReportIsTheSameAgain(t *testing.T) {
	t.Parallel()
	c := config(t, "C", 2)
	c.Rules.ExcludeTopology = true
	calls := 0
	c.Progress = func(done, all int) { calls = done*10 + all }
	first, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Run(t.Context(), c)
	if diff := cmp.Diff(first, second); err != nil || diff != "" || calls != 22 {
		t.Errorf("again: %v, %d\n%s", err, calls, diff)
	}
	for _, want := range []string{
		"20 nodes of C", "VFs without NUMA nodes", "90 % of the GPUs", "tandem-scheduler",
	} {
		if !strings.Contains(string(first.Table()), want) {
			t.Errorf("no %q in\n%s", want, first.Table())
		}
	}
}

// Every job is started, lost, waiting or about to try again, and when all have ended the nodes are empty.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	c := config(t, "B", 2)
	rate, err := c.rate(90)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Schedulers {
		trial := newTrial(&c, &c.Schedulers[i], 0)
		got := trial.play(newStream(&c, rate, 0))
		retrying := 0
		for _, e := range trial.events.list {
			if e.ends == nil && e.pod.counts {
				retrying++
			}
		}
		if got.started+got.lost+got.waiting+retrying != got.jobs || got.jobs != c.Arrivals {
			t.Errorf("%s: %+v, %d retrying", c.Schedulers[i].Name, got, retrying)
		}
		trial.advance(1e6)
		for _, n := range trial.nodes {
			if n.state.Free(world.GPU) != 8 || n.state.Free(world.VF) != c.Node.Count(world.VF) {
				t.Fatalf("%s: %d GPUs and %d VFs are free", c.Schedulers[i].Name, n.state.Free(world.GPU),
					n.state.Free(world.VF))
			}
		}
		if trial.used != 0 {
			t.Errorf("%s: %d GPUs are in use", c.Schedulers[i].Name, trial.used)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"1 to 5000 nodes":   func(c *Config) { c.Nodes = 5001 },
		"one scheduler":     func(c *Config) { c.Schedulers = nil },
		"burst 0: want 1":   func(c *Config) { c.Burst = 0 },
		"0 and 100 percent": func(c *Config) { c.Loads = []float64{100} },
		"asks for GPUs":     func(c *Config) { c.Mix = world.Mix{{Request: world.Request{VFs: 1}, Weight: 1}} },
		"no node":           func(c *Config) { c.Node = nil },
	} {
		c := config(t, "A", 1)
		change(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
