package scenarios

import (
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// Options choose what is tried.
type Options struct {
	Short      bool   // one boot with few pods
	Admissions int    // random ones
	Machine    string // only the one of this name, in any case; "" for all
	VFs        int    // only phases with so many VFs per PF; 0 for all
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

// phase is what is tried between two boots. Its last set-up goes through more than its scenarios.
type phase struct {
	vfsPerPF int
	thorough bool // what takes longer is tried: faults and random admissions
	multus   bool // so is Multus
	setups   []setup
}

// boots are those that the options ask for.
func boots(o Options) []boot {
	if o.Short {
		shipped := setup{
			name: "Tandem", deploy: mi300x.deploy, tandem: true, scenarios: []scenario{pair(4), pair(8)},
		}
		return []boot{{server: mi300x, example: true, phases: []phase{{vfsPerPF: 4, setups: []setup{shipped}}}}}
	}
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
	boots := []boot{
		{server: mi300x, plain: true, phases: []phase{
			{vfsPerPF: 4, thorough: true,
				setups: []setup{
					stock(pair(2), refusedPair(8)), intent, shipped(mi300x, slices.Concat(kinds, telling)...),
				}},
			{vfsPerPF: 1, multus: true, setups: []setup{stock(all...), hints, shipped(mi300x)}},
		}},
		{server: h100, example: true, phases: []phase{{vfsPerPF: 2, setups: []setup{shipped(h100)}}}},
	}
	for i := range boots {
		boots[i].phases = slices.DeleteFunc(boots[i].phases, func(p phase) bool {
			return o.VFs != 0 && o.VFs != p.vfsPerPF
		})
	}
	return slices.DeleteFunc(boots, func(b boot) bool {
		return len(b.phases) == 0 || o.Machine != "" && !strings.EqualFold(o.Machine, b.Name)
	})
}
