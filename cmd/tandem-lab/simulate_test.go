// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/simulate"
)

// few returns the arguments of a fast simulation.
func few(args ...string) []string {
	return append([]string{
		"simulate", "--seeds=2", "--arrivals=60", "--warmup=20", "--load=60", "--ways=stock,tandem",
	}, args...)
}

func TestSimulate(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"a preset", few(),
			[]string{
				"A: 8 GPUs, 64 VFs on 8 PFs; kubelet policy restricted", "60 % of the GPUs", "stock pair",
				"Tandem, request known",
			}},
		{"another", few("--node=b", "--vfs-per-pf=1", "--policy=none", "--mix=1+1:3,2+0"),
			[]string{"B: 8 GPUs, 4 VFs on 4 PFs; kubelet policy none", "1+1:3,2+0"}},
		{"VFs without NUMA nodes", few("--exclude-topology"), []string{"VFs without NUMA nodes"}},
		{"a recorded machine", few("--machine", recorded("nv-h800-8x8")), []string{"8 GPUs, 64 VFs on 8 PFs"}},
		{"one with its own VFs",
			few("--machine", recorded("nv-a100pcie-cx6dx-vf-partial"), "--mix=1+1,1+0", "--policy=best-effort"),
			[]string{"GPUs, "}},
		{"partitions", few("--machine", recorded("amd-mi300x-smc-thor2-cpx-derived")),
			[]string{"63 GPUs, 80 VFs on 10 PFs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := succeed(t, c.args...)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
		})
	}
}

func TestSimulateJSON(t *testing.T) {
	var report simulate.Report
	text := succeed(t, "simulate", "--seeds=2", "--arrivals=60", "--warmup=20", "--load=60", "-o=json",
		"--seed=3")
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if report.Seed != 3 || len(report.Loads) != 1 || len(report.Loads[0].Ways) != 4 ||
		report.Loads[0].Ways[0].Figures.PIX == nil {
		t.Errorf("%+v", report)
	}
	if help := succeed(t, "simulate", "--help"); !strings.Contains(help, "(default 30,60,90)") {
		t.Errorf("the loads are told as\n%s", help)
	}
}

func TestSimulateErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{few("--policy=restrictd"), cli.ExitUsage, "(did you mean restricted?)"},
		{few("--mix=1"), cli.ExitUsage, `parse request "1"`},
		{few("--load=0"), cli.ExitUsage, "load 0"},
		{few("--load=30,x"), cli.ExitUsage, `invalid argument "30,x" for "--load" flag: want a number; ` +
			`see tandem-lab simulate --help`},
		{few("--gpu-first=x"), cli.ExitUsage, `invalid argument "x" for "--gpu-first" flag: want a number`},
		{few("--ways=tandme"), cli.ExitUsage, "(did you mean tandem?)"},
		{few("--vfs-per-pf=-1"), cli.ExitUsage, "-1 VFs"},
		{few("--seeds=0"), cli.ExitUsage, "seeds 0: want 1 to 10000"},
		{few("--gpu-first=NaN"), cli.ExitUsage, "probability NaN is not between 0 and 1"},
		{few("--gpu-first=1.5"), cli.ExitUsage, "probability 1.5 is not between 0 and 1"},
		{few("--load=30,NaN"), cli.ExitUsage, "load NaN is not between 0 and 100 percent"},
		{few("--node=A", "--machine=x"), cli.ExitUsage, "exclude"},
		{few("-o=yaml"), cli.ExitUsage, "want table or json"},
		{few("x"), cli.ExitUsage, `unexpected argument "x"`},
		{few("--node=D"), cli.ExitError, "there are A, B, C"},
		{few("--machine=none.txt"), cli.ExitError, "none.txt"},
		{few("--vfs-per-pf=70000"), cli.ExitError, "no bus left"},
	} {
		code, stdout, stderr := run(c.args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q", c.args[len(c.args)-1], code, stdout, stderr)
		}
	}
}

// TestSimulateLimits: a number that needs more memory than a computer has is refused. The largest come first,
// because they cannot be allocated at all.
func TestSimulateLimits(t *testing.T) {
	for _, number := range []string{"9223372036854775807", "1000000000000000", "1000000000"} {
		for _, args := range [][]string{
			{"--seeds=" + number}, {"--arrivals=" + number}, {"--warmup=" + number},
		} {
			code, stdout, stderr := run(few(append([]string{"--seeds=1", "--arrivals=10"}, args...)...)...)
			if code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, number) {
				t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
			}
		}
	}
}
