// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/golden"
)

// small is a configuration that runs in well under a second.
func small(t testing.TB, node string, vfsPerPF int) Config {
	return Config{
		Node: presetNode(t, node, vfsPerPF), Policy: model.Restricted, Mix: mixOf(t, DefaultMix),
		Loads: []float64{60}, GPUFirst: 0.5, Seed: 1, Seeds: 4, Warmup: 50, Arrivals: 200, Ways: Ways(),
	}
}

func run(t testing.TB, c Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func figuresOf(t testing.TB, l Load, way string) Figures {
	t.Helper()
	i := slices.IndexFunc(l.Ways, func(w wayResult) bool { return w.Name == way })
	if i < 0 {
		t.Fatalf("no way %s", way)
	}
	return l.Ways[i].Figures
}

// Figures of the stock plugins on real kubelet managers and with the vendors' own policies, measured with 150
// seeds. A reduced run must be within its own confidence interval plus one point for the mean of the few
// calibration seeds.
func TestStockFiguresAreReproduced(t *testing.T) {
	for _, c := range []struct {
		node      string
		vfs       int
		load      float64
		pix, full float64
	}{
		{"A", 8, 60, 48.3, 18.1},
		{"B", 8, 60, 62.7, 40.0},
		{"A", 1, 60, 59.1, 32.0},
	} {
		config := small(t, c.node, c.vfs)
		config.Loads, config.Seeds, config.Arrivals, config.Warmup = []float64{c.load}, 20, 500, 100
		config.Ways = ways(t, "stock")
		f := figuresOf(t, run(t, config).Loads[0], "stock")
		if within := 1 + *f.PIX.CI; math.Abs(f.PIX.Mean-c.pix) > within {
			t.Errorf("node %s, %d VFs, %g %%: %s on one switch, want %.1f ±%.1f",
				c.node, c.vfs, c.load, f.PIX, c.pix, within)
		}
		if within := 1 + *f.Full.CI; math.Abs(f.Full.Mean-c.full) > within {
			t.Errorf("node %s, %d VFs, %g %%: %s fully paired, want %.1f ±%.1f",
				c.node, c.vfs, c.load, f.Full, c.full, within)
		}
		if math.Abs(f.Load.Mean-c.load) > 0.5 {
			t.Errorf("node %s: %s allocated, want %g", c.node, f.Load, c.load)
		}
	}
}

func TestTandemPairsEverythingWithManyVFs(t *testing.T) {
	for _, node := range Presets() {
		c := small(t, node, 8)
		c.Loads, c.Ways = []float64{30, 60, 90}, ways(t, "stock", "tandem", "joint")
		for _, l := range run(t, c).Loads {
			for _, way := range []string{"tandem", "joint"} {
				f := figuresOf(t, l, way)
				if f.PIX.Mean < 100 || f.Full.Mean < 100 || f.CrossNUMA.Mean > 0 {
					t.Errorf("node %s, %g %%, %s: %s on one switch, %s fully paired", node, l.Load, way, f.PIX, f.Full)
				}
				if stock := figuresOf(t, l, "stock"); f.Refused.Mean > stock.Refused.Mean {
					t.Errorf("node %s, %g %%, %s: %s refused, stock %s", node, l.Load, way, f.Refused, stock.Refused)
				}
			}
		}
	}
}

func TestResultDependsOnTheConfigurationAlone(t *testing.T) {
	c := small(t, "A", 2)
	before := runtime.GOMAXPROCS(1)
	one := run(t, c)
	runtime.GOMAXPROCS(4)
	four := run(t, c)
	runtime.GOMAXPROCS(before)
	if !reflect.DeepEqual(one, four) {
		t.Error("one processor and four give different results")
	}
	c.Seed++
	if reflect.DeepEqual(one.Loads, run(t, c).Loads) {
		t.Error("another seed gives the same result")
	}
}

func TestOutput(t *testing.T) {
	c := small(t, "A", 1)
	// ways without package placement
	c.Seeds, c.Arrivals, c.Ways = 2, 60, ways(t, "stock", "joint")
	steps := 0
	c.Progress = func(done, all int) {
		if steps++; done != steps || all != 2 {
			t.Errorf("progress %d of %d at step %d", done, all, steps)
		}
	}
	r := run(t, c)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/table.txt", r.Table().String())
	golden.Check(t, "testdata/report.json", string(text)+"\n")
	var back Report
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, r) {
		t.Errorf("JSON does not read back: %v", err)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Loads = []float64{100} }, "load 100"},
		{func(c *Config) { c.Loads = []float64{math.NaN()} }, "load NaN"},
		{func(c *Config) { c.Loads = nil }, "at least one load"},
		{func(c *Config) { c.Seeds = 0 }, "seeds 0: want 1 to 10000"},
		{func(c *Config) { c.GPUFirst = 2 }, "probability 2"},
		{func(c *Config) { c.Node = nil }, "no node"},
		{func(c *Config) { c.Mix = mixOf(t, "0+1") }, "never allocates"},
	} {
		config := small(t, "A", 1)
		c.change(&config)
		if _, err := Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, small(t, "A", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"1+1":                    "1+1",
		" 1+1:3, 0+2:0.5":        "1+1:3,0+2:0.5",
		DefaultMix:               DefaultMix,
		"1":                      "",
		"0+0":                    "",
		"-1+1":                   "",
		"1+1:0":                  "",
		"1+1:x":                  "",
		"1+1:NaN":                "",
		"1+1,":                   "",
		"1+99999999999999999999": "",
	} {
		m, err := ParseMix(text)
		if want == "" && err == nil || want != "" && (err != nil || m.String() != want) {
			t.Errorf("%q: %v, %v", text, m, err)
		}
	}
	if _, err := model.ParsePolicy("strict"); err == nil {
		t.Error("policy strict")
	}
	if _, err := FindWays([]string{"best"}); err == nil || !strings.Contains(err.Error(), "tandem-unknown") {
		t.Errorf("way best: %v", err)
	}
	if _, err := NewPreset("D", 1); err == nil {
		t.Error("node D")
	}
}

func TestEstimate(t *testing.T) {
	nan := math.NaN()
	if e := Mean([]float64{nan, nan}); e != nil {
		t.Errorf("nothing: %v", e)
	}
	if e := Mean([]float64{3, nan}); e.Mean != 3 || e.CI != nil {
		t.Errorf("one: %v", e)
	}
	if e := Mean([]float64{1, 2, 3, 4, 5}); e.Mean != 3 || math.Abs(*e.CI-1.963) > 0.002 { // t(4) = 2.776
		t.Errorf("five: %v ± %v", e.Mean, *e.CI)
	}
	for freedom, want := range map[int]float64{3: 3.182, 10: 2.228, 149: 1.976} {
		if got := student(freedom); math.Abs(got-want) > 0.01 {
			t.Errorf("t(%d) = %.3f, want %.3f", freedom, got, want)
		}
	}
}
