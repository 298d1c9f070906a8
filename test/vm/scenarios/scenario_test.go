// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// Devices below one switch, and a VF below another one.
const (
	nearGPU = "/sys/devices/pci0000:20/0000:20:00.0/0000:20/0000:28:00.0"
	nearVF  = "/sys/devices/pci0000:20/0000:20:00.0/0000:20/0000:25:10.0"
	farVF   = "/sys/devices/pci0000:20/0000:20:01.0/0000:20/0000:2d:10.0"
)

func TestJudge(t *testing.T) {
	near := cluster.View{GPUs: []string{nearGPU}, VFs: []string{nearVF}, Verified: true}
	far := cluster.View{GPUs: near.GPUs, VFs: []string{farVF}, Verdict: "too far"}
	unverified := near
	unverified.Verified = false
	saw := func(v cluster.View) cluster.Outcome { return cluster.Outcome{Containers: []cluster.View{v}} }
	refused := func(reason string) cluster.Outcome { return cluster.Outcome{Reason: reason} }
	for _, c := range []struct {
		name   string
		tandem bool
		o      cluster.Outcome
		wanted scenario
		fault  bool
	}{
		{"near", true, saw(near), pair(1), false},
		{"far", true, saw(far), pair(1), true},
		{"far without Tandem", false, saw(far), pair(1), false},
		{"far where that is a limit", true, saw(far), scenario{asks: pair(1).asks, limit: "a limit"}, false},
		{"near and tandem verify disagrees", true, saw(unverified), pair(1), true},
		{"too few devices", false, saw(near), pair(2), true},
		{"refused", true, refused(topologyAffinity), pair(1), true},
		{"refused as expected", true, refused(topologyAffinity), refusedPair(8), false},
		{"refused for another reason", true, refused("UnexpectedAdmissionError"), refusedPair(8), true},
		{"admitted against the rule", true, saw(near), refusedPair(1), true},
	} {
		if problem := judge(setup{tandem: c.tandem}, c.wanted, &c.o); (problem != "") != c.fault {
			t.Errorf("%s: %q", c.name, problem)
		}
	}
	for file, fault := range map[string]bool{"absent": true, "agrees": false} {
		v := near
		v.Verdict = "verified: 1 GPU, 1 VF, pairs in the order of the lists, pairs.json " + file
		o := saw(v)
		if problem := judge(setup{tandem: true, pairsFile: true}, pair(1), &o); (problem != "") != fault {
			t.Errorf("pairs.json is wanted, and %s: %q", file, problem)
		}
	}
}

// The options choose among the machines.
func TestBoots(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "MI300X, 4 VFs per PF, 1 VFs per PF; H100, 2 VFs per PF"},
		{Options{Machine: "h100"}, "H100, 2 VFs per PF"},
		{Options{Machine: "mi300x", VFs: 1}, "MI300X, 1 VFs per PF"},
		{Options{Machine: "h100", VFs: 1}, ""},
		{Options{Short: true}, "MI300X, 4 VFs per PF"},
		{Options{Short: true, Machine: "h100"}, ""},
		{Options{Setup: "dra"}, "MI300X, 4 VFs per PF"},
		{Options{Setup: "as shipped"}, "MI300X, 4 VFs per PF, 1 VFs per PF; H100, 2 VFs per PF"},
		{Options{Setup: "nobody's"}, ""},
		{Options{Walk: true}, "MI300X, 4 VFs per PF"},
		{Options{Walk: true, VFs: 1}, "MI300X, 1 VFs per PF"},
		{Options{Walk: true, Machine: "h100"}, ""},
		{Options{Walk: true, Setup: "dra"}, ""},
		{Options{Traffic: true}, "H100, 2 VFs per PF"},
		{Options{Traffic: true, Short: true}, "MI300X, 4 VFs per PF"},
		{Options{Traffic: true, Setup: "dra"}, ""},
		{Options{Upgrade: true}, "MI300X, 4 VFs per PF"},
		{Options{Upgrade: true, Machine: "h100"}, ""},
		{Options{Shell: true}, "MI300X, 4 VFs per PF"},
		{Options{Shell: true, Machine: "h100"}, "H100, 2 VFs per PF"},
		{Options{Shell: true, VFs: 1}, "MI300X, 1 VFs per PF"},
		{Options{Shell: true, Machine: "b200"}, ""},
	} {
		var titles []string
		for _, b := range boots(c.o) {
			title := []string{b.Name}
			for _, p := range b.phases {
				title = append(title, fmt.Sprintf("%d VFs per PF", p.vfsPerPF))
				n := cluster.Node{Shape: b.Shape, VFsPerPF: p.vfsPerPF}
				if b.GPUs() != 8 || n.VFs() != 8*p.vfsPerPF {
					t.Errorf("%s has %d GPUs and %d VFs", n.Title(), b.GPUs(), n.VFs())
				}
			}
			titles = append(titles, strings.Join(title, ", "))
		}
		if got := strings.Join(titles, "; "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.o, got, c.want)
		}
	}
}

// What is chosen by a set-up's name is its pods alone.
func TestBootsOfOneSetup(t *testing.T) {
	for _, o := range []Options{{Setup: "dra"}, {Setup: "Tandem", Short: true}} {
		list := boots(o)
		if len(list) != 1 || list[0].plain || list[0].example || len(list[0].phases) != 1 {
			t.Fatalf("%+v: %+v", o, list)
		}
		p := list[0].phases[0]
		if p.thorough || p.multus || p.traffic || len(p.setups) != 1 || !p.setups[0].tandem {
			t.Errorf("%+v: %+v", o, p)
		}
	}
	if b := boots(Options{Walk: true})[0]; !b.plain || len(b.phases[0].setups) != 0 {
		t.Errorf("the walk alone: %+v", b)
	}
	if b := boots(Options{Traffic: true})[0]; b.example || !b.traffic() || len(b.phases[0].setups) != 1 ||
		len(b.phases[0].setups[0].scenarios) != 0 {
		t.Errorf("traffic alone: %+v", b)
	}
	if b := boots(Options{Upgrade: true})[0]; b.plain || len(b.phases[0].setups) != 1 || !b.phases[0].upgrade ||
		b.phases[0].thorough {
		t.Errorf("the upgrade alone: %+v", b)
	}
	if b := boots(Options{Shell: true})[0]; !b.plain || b.example || len(b.phases[0].setups) != 0 {
		t.Errorf("a shell: %+v", b)
	}
	if b := boots(Options{})[0]; !b.plain || !b.phases[0].thorough || !b.phases[1].multus ||
		!slices.ContainsFunc(b.phases[0].setups, func(s setup) bool { return s.driver }) {
		t.Errorf("without options: %+v", b)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	has := func(pod string, devices ...string) holder {
		return holder{pod, &cluster.Outcome{Containers: []cluster.View{{GPUs: devices[:1], VFs: devices[1:]}}}}
	}
	for _, c := range []struct {
		pods []holder
		want string
	}{
		{[]holder{has("a", "g1", "v1"), has("b", "g2", "v2"), {"refused", &cluster.Outcome{}}}, ""},
		{[]holder{has("a", "g1", "v1"), has("b", "g1", "v2")}, "a and b both have g1"},
		{[]holder{has("a", "g1", "v1"), has("b", "g2", "v2"), has("c", "g3", "v1")}, "a and c both have v1"},
	} {
		if got := shared(c.pods); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
