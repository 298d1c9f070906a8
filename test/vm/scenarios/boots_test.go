// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

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
		{Options{Setup: "operator"}, "MI300X, 4 VFs per PF"},
		{Options{Setup: "dra"}, "MI300X, 4 VFs per PF"},
		{Options{Setup: "as shipped"}, "MI300X, 4 VFs per PF, 1 VFs per PF; H100, 2 VFs per PF"},
		{Options{Setup: "nobody's"}, ""},
		{Options{Walk: true}, "MI300X, 4 VFs per PF"},
		{Options{Walk: true, VFs: 1}, "MI300X, 1 VFs per PF"},
		{Options{Walk: true, Machine: "h100"}, ""},
		{Options{Walk: true, Setup: "operator"}, ""},
		{Options{Traffic: true}, "H100, 2 VFs per PF"},
		{Options{Traffic: true, Short: true}, "MI300X, 4 VFs per PF"},
		{Options{Traffic: true, Setup: "operator"}, ""},
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
	for _, o := range []Options{{Setup: "operator"}, {Setup: "operator", Short: true}} {
		list := boots(o)
		if len(list) != 1 || list[0].plain || list[0].example || len(list[0].phases) != 1 {
			t.Fatalf("%+v: %+v", o, list)
		}
		p := list[0].phases[0]
		if p.thorough || p.multus || p.traffic || len(p.setups) != 1 || !p.setups[0].operators {
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
		!slices.ContainsFunc(b.phases[0].setups, func(s setup) bool { return s.operators }) {
		t.Errorf("without options: %+v", b)
	}
}
