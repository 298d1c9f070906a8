// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Options are the properties of a node that a promise must not depend on.
type Options struct {
	Machine         string
	VFs             int           // on each PF
	Source          intent.Source // "" for PodResources alone
	None            bool          // the Topology Manager has policy none
	ExcludeTopology bool          // VFs have no NUMA node
	OneProcess      bool          // both plugins are one process
	Published       bool          // plugins publish the node, and the scheduler's verdicts are compared

	Required     bool   `json:",omitempty"` // --alignment=required
	OptOut       bool   `json:",omitempty"` // --alignment-opt-out has the usual namespace
	NoPairsFiles bool   `json:",omitempty"` // VFs have no pairs files
	AutoTopology bool   `json:",omitempty"` // excludeTopology is "auto", unless VFs have no NUMA node
	Policy       string `json:",omitempty"` // of the Topology Manager, unless None; "" for restricted
	ScopePod     bool   `json:",omitempty"` // its scope is pod
	Direct       bool   `json:",omitempty"` // a plugin that serves asks itself directly, not over the socket
	Condition    string `json:",omitempty"` // of all storms; "" for each in turn
}

// OptionsOf returns the properties of a seed's node.
func OptionsOf(seed uint64) Options {
	return Options{
		Machine:         []string{"oci-mi300x-derived", "amd-mi250-16gcd-8nic"}[seed/2%2],
		VFs:             1 + int(seed%2),
		Source:          []intent.Source{intent.PodsAPI, intent.Kubelet, ""}[seed/4%3],
		None:            seed%5 == 1,
		ExcludeTopology: seed%3 == 0,
		OneProcess:      seed%7 == 3,
		Published:       (seed+seed/4+seed/16)%2 == 0,
		Required:        seed%7 == 4,
		OptOut:          seed%14 == 4,
		NoPairsFiles:    seed%8 == 5,
		AutoTopology:    seed%9 == 2,
		Policy:          []string{"", "", topologymanager.BestEffort, topologymanager.SingleNUMANode, ""}[seed%5],
		ScopePod:        seed%4 == 3,
		Direct:          (seed+seed/8)%2 == 0,
	}
}

// optionSeeds is a number of successive seeds that have each value of each option.
const optionSeeds = 14

// withSource is a number of successive seeds of which one has a source of requests.
const withSource = 5

// values returns the values of the options, each with its name.
func (o Options) values() []string {
	text, _, _ := strings.Cut(fmt.Sprintf("%+v", o), " Condition:") // the last field is no property
	return strings.Fields(strings.Trim(text, "{}"))
}

// optionValues returns the values that occur among successive seeds.
func optionValues() (all []seeds.Condition) {
	known := map[string]bool{}
	for seed := range uint64(optionSeeds) {
		for _, value := range OptionsOf(seed).values() {
			if !known[value] {
				all = append(all, seeds.Condition{Name: value, Within: optionSeeds})
			}
			known[value] = true
		}
	}
	return all
}

// policy returns the node's policy for annotations.
func (o Options) policy() (p intent.Policy) {
	if o.Required {
		p.Alignment = intent.Required
	}
	if o.OptOut {
		_ = p.OptOut.UnmarshalText([]byte(usual)) // cannot fail
	}
	return p
}

// manager returns the policy and the scope of the kubelet's Topology Manager.
func (o Options) manager() (policy, scope string) {
	policy, scope = cmp.Or(o.Policy, topologymanager.Restricted), "container"
	if o.None {
		policy = topologymanager.None
	}
	if o.ScopePod {
		scope = "pod"
	}
	return policy, scope
}

// requires reports whether the pairs of a pod have to be on one switch each. Without a source of requests
// nobody reads annotations.
func (o Options) requires(p *model.Pod) bool {
	switch {
	case o.Source == "":
		return o.Required
	case p.Alignment == intent.Preferred && o.OptOut && p.Namespace == usual:
		return false
	default:
		return o.Required || p.Alignment == intent.Required
	}
}

// topology returns the value of excludeTopology of the VFs, in JSON.
func (o Options) topology() string {
	switch {
	case o.ExcludeTopology:
		return "true"
	case o.AutoTopology:
		return `"auto"`
	default:
		return "false"
	}
}
