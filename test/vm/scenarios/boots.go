// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// Options select the tests.
type Options struct {
	Short      bool   // a single boot with few pods
	Admissions int    // random ones
	Machine    string // name of the only machine, in any case; "" for all
	VFs        int    // only phases with this number of VFs per PF; 0 for all
	Setup      string // only set-ups with this in their name, and nothing beside their scenarios; "" for all
	Walk       bool   // only a new user's way through the documents
	Traffic    bool   // only RDMA traffic
	Upgrade    bool   // only the version before, and back
	Shell      bool   // a shell beside one machine with an unconfigured kubelet, and no tests
}

// server is a kind of machine, with its deployment.
type server struct {
	machine.Shape
	deploy string // folder below deploy
	job    string // the example
}

var (
	mi300x = server{machine.MI300X, "tandem", "deployments/examples/amd-4x4.yaml"}
	h100   = server{machine.H100, "nvidia", "deployments/examples/nvidia-4x4.yaml"}
)

// boot is one start of a server.
type boot struct {
	server
	plain   bool // its kubelet starts with nothing but its owner's configuration, and a new user walks
	example bool // test the shipped example; part of a new user's walk
	phases  []phase
}

// phase has the tests between two boots. Its last set-up has more than its scenarios. Without set-ups there
// is only the walk.
type phase struct {
	vfsPerPF int
	thorough bool // include long tests: faults and random admissions
	multus   bool // include Multus
	traffic  bool // include RDMA traffic
	upgrade  bool // include the version before, and back
	setups   []setup
}

// boots returns the boots selected by the options.
func boots(o Options) []boot {
	if o.Shell {
		return forShell(o)
	}
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

// forShell returns the machine of a shell: the one that the options name, or the first.
func forShell(o Options) []boot {
	for _, b := range everything() {
		if o.Machine == "" || strings.EqualFold(o.Machine, b.Name) {
			vfs := cmp.Or(o.VFs, b.phases[0].vfsPerPF)
			return []boot{{server: b.server, plain: true, phases: []phase{{vfsPerPF: vfs}}}}
		}
	}
	return nil
}

// choose reduces a boot to the selection of the options.
func (b *boot) choose(o Options) {
	if o.Setup != "" || o.Traffic || o.Upgrade {
		b.plain, b.example = false, false
	}
	for i := range b.phases {
		b.phases[i].choose(o)
	}
	b.phases = slices.DeleteFunc(b.phases, func(p phase) bool {
		return len(p.setups) == 0 || o.VFs != 0 && o.VFs != p.vfsPerPF
	})
	if o.Walk && len(b.phases) > 0 {
		b.phases = []phase{{vfsPerPF: b.phases[0].vfsPerPF}}
	}
}

func (p *phase) choose(o Options) {
	alone := o.Traffic || o.Upgrade
	if o.Setup != "" || alone {
		p.thorough, p.multus = false, false
	}
	p.setups = slices.DeleteFunc(p.setups, func(s setup) bool { return !strings.Contains(s.name, o.Setup) })
	if !alone {
		p.traffic, p.upgrade = p.traffic && o.Setup == "", p.upgrade && o.Setup == ""
		return
	}
	p.traffic, p.upgrade = p.traffic && o.Traffic, p.upgrade && o.Upgrade
	if len(p.setups) == 0 || !p.traffic && !p.upgrade {
		p.setups = nil
		return
	}
	p.setups = p.setups[len(p.setups)-1:]
	p.setups[0].scenarios = nil
}

// traffic reports whether a phase includes RDMA traffic.
func (b *boot) traffic() bool {
	return slices.ContainsFunc(b.phases, func(p phase) bool { return p.traffic })
}

func few() []boot {
	shipped := setup{
		name: "Tandem", deploy: mi300x.deploy, tandem: true, scenarios: []scenario{pair(4), pair(8)},
	}
	phases := []phase{{vfsPerPF: 4, traffic: true, setups: []setup{shipped}}}
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
		known[i].limit = "" // the kubelet identifies the container
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
			{vfsPerPF: 4, thorough: true, upgrade: true,
				setups: []setup{
					stock(pair(2), refusedPair(8)), byDriver, published, intent,
					shipped(mi300x, slices.Concat(kinds, telling)...),
				}},
			{vfsPerPF: 1, multus: true, setups: []setup{stock(all...), hints, shipped(mi300x)}},
		}},
		{server: h100, example: true, phases: []phase{
			{vfsPerPF: 2, traffic: true, setups: []setup{shipped(h100)}},
		}},
	}
}
