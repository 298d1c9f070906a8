// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// Options choose what is tried.
type Options struct {
	Short      bool   // one boot with few pods
	Admissions int    // random ones
	Machine    string // only the one of this name, in any case; "" for all
	VFs        int    // only phases with so many VFs per PF; 0 for all
	Setup      string // only set-ups with this in their name, and nothing beside their scenarios; "" for all
	Walk       bool   // only a new user's way through the documents
}

// server is a kind of machine, and what is shipped for it.
type server struct {
	machine.Shape
	deploy string // folder below deploy
	job    string // the example
}

var (
	mi300x = server{machine.MI300X, "tandem", "deployments/examples/amd-4x4.yaml"}
	h100   = server{machine.H100, "nvidia", "deployments/examples/nvidia-4x4.yaml"}
)

// boot is a server that is switched on once.
type boot struct {
	server
	plain   bool // its kubelet starts with nothing but its owner's configuration, and a new user walks
	example bool // the shipped example is tried; where a new user walks it is part of that
	phases  []phase
}

// phase is what is tried between two boots. Its last set-up goes through more than its scenarios. Without
// set-ups there is the walk alone.
type phase struct {
	vfsPerPF int
	thorough bool // what takes longer is tried: faults and random admissions
	multus   bool // so is Multus
	setups   []setup
}

// byOperators is Tandem as operators of the stock plugins start it: nothing is changed but the image.
var byOperators = setup{
	name:      "Tandem, by AMD's GPU operator and the SR-IOV network operator",
	operators: true,
	tandem:    true,
	scenarios: []scenario{
		pair(4), pair(8),
		// Of two plugins that do not see each other one would begin with the second switch, one with the first.
		{name: "two containers, 1 GPU and 2+2", asks: []cluster.Ask{{GPUs: 1}, {GPUs: 2, VFs: 2}}},
	},
}

// boots are those that the options ask for.
func boots(o Options) []boot {
	list := everything()
	if o.Short {
		list = few()
	}
	for i := range list {
		list[i].choose(o)
	}
	return slices.DeleteFunc(list, func(b boot) bool {
		return len(b.phases) == 0 || o.Walk && !b.plain || o.Machine != "" && !strings.EqualFold(o.Machine, b.Name)
	})
}

// choose leaves a boot what the options ask for.
func (b *boot) choose(o Options) {
	if o.Setup != "" {
		b.plain, b.example = false, false
	}
	for i := range b.phases {
		p := &b.phases[i]
		if o.Setup != "" {
			p.thorough, p.multus = false, false
		}
		p.setups = slices.DeleteFunc(p.setups, func(s setup) bool { return !strings.Contains(s.name, o.Setup) })
	}
	b.phases = slices.DeleteFunc(b.phases, func(p phase) bool {
		return len(p.setups) == 0 || o.VFs != 0 && o.VFs != p.vfsPerPF
	})
	if o.Walk && len(b.phases) > 0 {
		b.phases = []phase{{vfsPerPF: b.phases[0].vfsPerPF}}
	}
}

func few() []boot {
	shipped := setup{
		name: "Tandem", deploy: mi300x.deploy, tandem: true, scenarios: []scenario{pair(4), pair(8)},
	}
	phases := []phase{{vfsPerPF: 4, setups: []setup{byOperators, shipped}}}
	return []boot{{server: mi300x, example: true, phases: phases}}
}

func everything() []boot {
	all := []scenario{pair(1), pair(2), pair(4), pair(8)}
	shipped := func(s server, more ...scenario) setup {
		return setup{
			name: "Tandem, as shipped", deploy: s.deploy, tandem: true, scenarios: slices.Concat(all, more),
		}
	}
	known := slices.Clone(telling)
	for i := range known {
		known[i].limit = "" // it is the kubelet that tells
	}
	intent := setup{
		name:      "Tandem, told by the kubelet",
		deploy:    "intent",
		tandem:    true,
		source:    "kubelet",
		scenarios: append(known, pair(4)),
	}
	hints := setup{
		name:      "Tandem, hints for VFs and pairs.json",
		deploy:    "hints",
		tandem:    true,
		pairsFile: true,
		scenarios: []scenario{pair(4), pair(8)},
	}
	stock := func(scenarios ...scenario) setup {
		return setup{name: "stock, no preferred allocation", deploy: "stock", scenarios: scenarios}
	}
	return []boot{
		{server: mi300x, plain: true, phases: []phase{
			{vfsPerPF: 4, thorough: true,
				setups: []setup{
					stock(pair(2), refusedPair(8)), byOperators, byDriver, published, intent,
					shipped(mi300x, slices.Concat(kinds, telling)...),
				}},
			{vfsPerPF: 1, multus: true, setups: []setup{stock(all...), hints, shipped(mi300x)}},
		}},
		{server: h100, example: true, phases: []phase{{vfsPerPF: 2, setups: []setup{shipped(h100)}}}},
	}
}
