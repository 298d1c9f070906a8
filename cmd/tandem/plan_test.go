// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/topology"
)

// planned asks for a plan as JSON. The exit code has to tell a request that the kubelet rejects.
func planned(t *testing.T, args ...string) machine.Plan {
	t.Helper()
	var p machine.Plan
	code, text, stderr := run(append([]string{"plan", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%v: exit code %d, %s%s", err, code, text, stderr)
	}
	want := cli.ExitOK
	if strings.Contains(p.Note, "the kubelet rejects this request") {
		want = exitFound
	}
	if code != want {
		t.Errorf("exit code %d with the note %q", code, p.Note)
	}
	return p
}

// levels counts the pairs by distance.
func levels(p machine.Plan) map[string]int {
	count := map[string]int{}
	for _, pair := range p.Pairs {
		count[pair.Distance.String()]++
	}
	return count
}

func TestPlanOutput(t *testing.T) {
	t.Parallel()
	file := withVFs(t, "oci-mi300x-derived", 2)
	golden.Check(t, "testdata/plan-2-2.txt",
		succeed(t, "plan", "--gpus", "2", "--vfs", "2", "--used", "0000:11:00.0,0000:41:00.1", "--machine", file))
	golden.Check(t, "testdata/plan-2-2.json",
		succeed(t, "plan", "--gpus", "2", "--vfs", "2", "-o", "json", "--machine", file))
	golden.Check(t, "testdata/plan-gpus.txt", succeed(t, "plan", "--gpus", "2", "--machine", file))
	golden.Check(t, "testdata/plan-vfs.txt", succeed(t, "plan", "--vfs", "2", "--machine", file))
}

// TestPlanOfUsers: the three cases of a node with as many NICs as GPUs.
func TestPlanOfUsers(t *testing.T) {
	t.Parallel()
	one, four := withVFs(t, "oci-mi300x-derived", 1), withVFs(t, "oci-mi300x-derived", 4)
	config := func(exclude string) string {
		return write(t, "config.json", `{"resourceList": [{"resourceName": "vf", "excludeTopology": `+exclude+
			`, "selectors": {"vendors": ["15b3"], "devices": ["101e"], "isRdma": true}}]}`)
	}
	for _, test := range []struct {
		about string
		args  []string
		pairs map[string]int
		nodes []int
		note  bool
	}{
		{"4+4, one VF per PF", []string{"--gpus", "4", "--vfs", "4", "--machine", one}, map[string]int{"PIX": 4},
			[]int{0}, false},
		{"8+8, one VF per PF", []string{"--gpus", "8", "--vfs", "8", "--machine", one}, map[string]int{"PIX": 8},
			[]int{0, 1}, false},
		{"8+8, four VFs per PF", []string{"--gpus", "8", "--vfs", "8", "--machine", four}, map[string]int{"PIX": 8},
			[]int{0, 1}, false},
		{"8+1", []string{"--gpus", "8", "--vfs", "1", "--machine", one},
			map[string]int{"PIX": 1, "NODE": 3, "SYS": 4}, []int{}, true},
		{"hints in any case",
			[]string{"--gpus", "8", "--vfs", "8", "--machine", four, "--config", config("false")},
			map[string]int{"PIX": 8}, []int{}, true},
		{"VFs without NUMA nodes",
			[]string{"--gpus", "8", "--vfs", "8", "--machine", four, "--config", config("true")},
			map[string]int{"PIX": 8}, []int{0, 1}, false},
		{"one node taken",
			[]string{
				"--gpus", "1", "--vfs", "1", "--machine", one, "--used",
				"0000:0c:00.1,0000:2a:00.1,0000:41:00.1,0000:58:00.1",
			}, map[string]int{"PIX": 1}, []int{1}, false},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			p := planned(t, test.args...)
			if diff := cmp.Diff(test.pairs, levels(p)); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.nodes, p.Nodes); diff != "" {
				t.Errorf("NUMA nodes (-want +got):\n%s", diff)
			}
			if (p.Note != "") != test.note {
				t.Errorf("note %q", p.Note)
			}
			if assumed := strings.Contains(p.Note, "without --config the VFs are one pool"); assumed !=
				(test.note && !slices.Contains(test.args, "--config")) {
				t.Errorf("note %q", p.Note)
			}
		})
	}
}

// In the picture the devices of a pair have one colour, a VF shared by two GPUs has that of both, and the
// legend has only used looks.
func TestPlanPicture(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		machine, gpus, vfs string
		want               []string
	}{
		{recorded("oci-mi300x-derived"), "2", "2", []string{
			">2 GPUs and 2 VFs on oci-mi300x-derived</text>",
			`<rect class="card allocated o0" x="30"`, `<rect class="card allocated o0" x="164"`, ">p1</text>",
			">pair 1, PIX</text>", ">pair 2, PIX</text>", ">free</text>",
		}},
		{withVFs(t, "oci-mi300x-derived", 2), "1", "2", []string{
			`class="cell allocated o0"`, `class="card allocated o0"`, ">pair 1, PIX</text>", ">free</text>",
		}},
		{withVFs(t, "amd-mi250-16gcd-8nic", 1), "2", "1", []string{">pair 1, PIX</text>"}},
		{recorded("amd-mi300x-cpx-kfd"), "2", "0", []string{`class="cell allocated o0"`, ">in no pair</text>"}},
	} {
		drawn := succeed(t, "plan", "--gpus", test.gpus, "--vfs", test.vfs, "--machine", test.machine, "-o", "svg")
		for _, want := range test.want {
			if !strings.Contains(drawn, want) {
				t.Errorf("%s, %s+%s: no %q", test.machine, test.gpus, test.vfs, want)
			}
		}
		for _, absent := range []string{"unhealthy</text>", "not known yet", "pair 2, PIX</text>"} {
			if strings.Contains(drawn, absent) && !slices.ContainsFunc(test.want,
				func(want string) bool { return strings.Contains(want, absent) }) {
				t.Errorf("%s, %s+%s: %q", test.machine, test.gpus, test.vfs, absent)
			}
		}
	}
}

// TestPlanLeavesUsed: no plan contains used devices, and the pairs are those of the lists.
func TestPlanLeavesUsed(t *testing.T) {
	t.Parallel()
	file := withVFs(t, "nv-h100-oci", 2)
	used := "0000:0f:00.0,0000:2a:00.1, 0000:2A:00.2"
	p := planned(t, "--gpus", "2", "--vfs", "2", "--used", used, "--machine", file)
	for i, pair := range p.Pairs {
		if pair.GPU != p.GPUs[i] || pair.VF != p.VFs[i] {
			t.Errorf("pair %d is %v, the lists are %v and %v", i, pair, p.GPUs, p.VFs)
		}
		if strings.Contains(strings.ToLower(used), pair.GPU) || strings.Contains(strings.ToLower(used), pair.VF) {
			t.Errorf("%v is used", pair)
		}
		if pair.Distance != topology.PIX {
			t.Errorf("%v is not on one switch", pair)
		}
	}
}

func TestPlanOfPartitions(t *testing.T) {
	t.Parallel()
	p := planned(t, "--gpus", "63", "--machine", recorded("amd-mi300x-cpx-kfd"))
	if len(p.GPUs) != 63 || len(p.VFs) != 0 || len(p.Pairs) != 0 {
		t.Errorf("%d GPUs, %d VFs, %d pairs; want 63, 0, 0", len(p.GPUs), len(p.VFs), len(p.Pairs))
	}
	p = planned(t, "--gpus", "1", "--used", "0000:05:00.0,amdgpu_xcp_0", "--machine",
		recorded("amd-mi300x-cpx-kfd"))
	if len(p.GPUs) != 1 || p.GPUs[0] == "0000:05:00.0" || p.GPUs[0] == "amdgpu_xcp_0" {
		t.Errorf("GPUs %v", p.GPUs)
	}
}

func TestPlanConfigErrors(t *testing.T) {
	t.Parallel()
	oci := recorded("oci-mi300x-derived")
	for _, config := range []string{
		"none.json", write(t, "empty.json", ""), write(t, "not.json", "resourceList:"),
	} {
		code, stdout, stderr := run("plan", "--vfs", "1", "--machine", oci, "--config", config)
		if code != cli.ExitError || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, config) {
			t.Errorf("%s: exit code %d, standard error %q", config, code, stderr)
		}
	}
}

// TestStockPlan: the stock plugins choose VFs at random below the NUMA node, and the plan is a typical draw.
func TestStockPlan(t *testing.T) {
	t.Parallel()
	one, four := withVFs(t, "oci-mi300x-derived", 1), withVFs(t, "oci-mi300x-derived", 4)
	for _, test := range []struct {
		gpus, vfs, machine string
		pairs              map[string]int
		nodes              []int
	}{
		{"2", "2", one, map[string]int{"PIX": 1, "NODE": 1}, []int{0}},
		{"4", "4", one, map[string]int{"PIX": 4}, []int{0}}, // all devices of a NUMA node
		{"4", "4", four, map[string]int{"PIX": 3, "NODE": 1}, []int{0}},
		{"2", "0", one, map[string]int{}, []int{0}},
		{"8", "8", four, map[string]int{}, []int{}}, // rejected
	} {
		args := []string{"--gpus", test.gpus, "--vfs", test.vfs, "--machine", test.machine, "--stock"}
		p := planned(t, args...)
		if diff := cmp.Diff(test.pairs, levels(p)); diff != "" {
			t.Errorf("%v: pairs (-want +got):\n%s", args, diff)
		}
		if len(test.nodes) > 0 && len(p.Nodes) != len(test.nodes) || len(test.nodes) == 0 && len(p.Nodes) > 0 {
			t.Errorf("%v: nodes %v, want %d", args, p.Nodes, len(test.nodes))
		}
		if again := planned(t, args...); cmp.Diff(p, again, cmp.AllowUnexported(machine.Plan{})) != "" {
			t.Errorf("%v: another plan the second time", args)
		}
	}
	// With two free GPUs on each node no single node has four, and four fit on one node of the machine.
	const used = "0000:11:00.0,0000:2f:00.0,0000:8b:00.0,0000:aa:00.0"
	args := []string{"--gpus", "4", "--machine", one, "--used", used}
	for _, args := range [][]string{args, append(args, "--stock")} {
		if p := planned(t, args...); !strings.Contains(p.Note, "the kubelet rejects this request") {
			t.Errorf("%v: the container is admitted", args)
		}
	}
}

// TestPlanWidth: a picture that is less wide has its switches in more rows.
func TestPlanWidth(t *testing.T) {
	t.Parallel()
	file := withVFs(t, "oci-mi300x-derived", 1)
	args := []string{"plan", "--gpus", "1", "--vfs", "1", "--machine", file, "-o", "svg"}
	drawn := succeed(t, append(args, "--width", "640")...)
	if !strings.Contains(drawn, ` width="640" `) {
		t.Errorf("the picture starts with %.120s", drawn)
	}
	code, _, stderr := run(append(args, "--width", "20")...)
	if code != cli.ExitUsage || !strings.Contains(stderr, "--width") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
