// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// planTTL is the lifetime of a plan. The kubelet asks for the second half of a container within milliseconds
// of the first; an admission that fails in between leaves its plan behind.
const planTTL = 2 * time.Second

// plan reserves devices for the halves of a request without a question so far.
type plan struct {
	devices   map[string][]string // by resource, in the order of the pairs
	resource  string              // of the answered question
	anew      bool                // the question had no devices of an init container to include
	choice    *placement.Choice   // origin of all devices
	predicted bool                // the NUMA nodes are a prediction
	chosen    bool                // of more on the same NUMA nodes: the kubelet takes these only as the answer
	expires   time.Time

	// the reservation of the container's first question, for statistics: the plan of the next question replaces
	// the devices and keeps the promise
	promised map[string][]string // by resource
	until    time.Time
}

// newPlan returns the plan for a choice: the answer to the question, and the rest of the request.
func newPlan(
	choice *placement.Choice, set resources.Set, q asking.Question, container asking.Container,
) *plan {
	p := &plan{
		devices:  map[string][]string{},
		resource: q.Resource,
		anew:     len(q.MustInclude) == 0,
		choice:   choice,
	}
	offered := map[string]bool{}
	for _, id := range slices.Concat(q.Available, q.MustInclude) {
		offered[id] = true
	}
	for _, chosen := range slices.Concat(choice.GPUs, choice.VFs) {
		name := q.Resource
		if !offered[chosen.ID] {
			name = set.OfDevice(chosen.ID, q.Resource)
		}
		if name != "" {
			p.devices[name] = append(p.devices[name], chosen.ID)
		}
	}
	maps.DeleteFunc(p.devices, func(name string, ids []string) bool {
		isNew := func(id string) bool { return !container.Has(name, id) }
		return name != q.Resource && !slices.ContainsFunc(ids, isNew)
	})
	answer := p.devices[q.Resource]
	isAnswer := func(id string) bool { return slices.Contains(answer, id) }
	rest := slices.DeleteFunc(slices.Clone(q.Available), isAnswer)
	p.chosen = len(rest) > 0 && set.SameNodes(kubelet.Devices{q.Resource: answer}, q.Resource, rest)
	return p
}

// others returns the planned devices of all resources except one.
func (p *plan) others(name string) map[string][]string {
	others := maps.Clone(p.devices)
	delete(others, name)
	return others
}

// keeps reports whether the plan reserves exactly these devices of a resource.
func (p *plan) keeps(name string, ids []string) bool {
	return p != nil && device.SameSet(p.devices[name], ids)
}

// clone returns a copy with maps of its own.
func (p *plan) clone() *plan {
	if p == nil {
		return nil
	}
	next := *p
	next.devices, next.promised = maps.Clone(p.devices), maps.Clone(p.promised)
	return &next
}

// secondHalf returns the knowledge for the second half of a container, as identified at its first half.
func secondHalf(c *asking.Container) asking.Knowledge {
	if c.Asker != nil {
		return asking.Knowledge{Source: c.Asker.Source, Why: asking.SecondHalf, Asker: c.Asker}
	}
	return asking.Knowledge{Source: intent.PodResources, Why: asking.SecondHalf + " of " + c.Name()}
}
