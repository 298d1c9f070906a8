// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// ill are the faults of ports, counters and PCI Express links. Every promise is valid: the kubelet loses
// devices only by a failure, and Tandem takes the best of those that are left.
var ill = []fault{
	{name: "all counters rise to their limits", begin: allRise, calm: true},
	{name: "port flaps", begin: portFlaps, fits: degradable(rig.VF), calm: true},
	{name: "errors of a port rise", calm: true, fits: degradable(rig.VF),
		begin: rises(device.Degraded, "link_error_recovery", "port_rcv_errors", "local_ack_timeout_err",
			"port_xmit_discards", "roce_slow_restart")},
	{name: "PCI Express errors rise", calm: true, fits: degradable(""),
		begin: rises(device.Degraded, "aer_nonfatal", "aer_correctable")},
	{name: "PCI Express link loses lanes", begin: linkNarrows, fits: degradable(""), calm: true},
	{name: "port flaps and loses its link", begin: linkFlaps, fits: failable(rig.VF), calm: true},
	{name: "port fails by its counters", calm: true, fits: failable(rig.VF),
		begin: rises(device.Failed, "link_downed", "excessive_buffer_overrun_errors",
			"local_link_integrity_errors", "rnr_nak_retry_err")},
	{name: "PCI Express fails", calm: true, fits: failable(""), begin: rises(device.Failed, "aer_fatal")},
	{name: "port is down for long", begin: portDown, fits: failable(rig.VF), calm: true},
}

// mostIll bounds the functions that are ill at once, so that enough good ones are left.
var mostIll = map[string]map[string]int{
	device.Failed:   {rig.VF: 2, rig.AMD: 1},
	device.Degraded: {rig.VF: 3, rig.AMD: 2},
}

func failable(resource string) func(*chaos) bool {
	return func(c *chaos) bool { return len(c.well(device.Failed, resource)) > 0 }
}

func degradable(resource string) func(*chaos) bool {
	return func(c *chaos) bool { return len(c.well(device.Degraded, resource)) > 0 }
}

// well returns the functions that can get into a state now, of a resource or of any.
func (c *chaos) well(state, resource string) (some []*rig.Function) {
	for _, f := range c.Functions() {
		if c.ill[f.Address] == nil && (resource == "" || f.Resource == resource) &&
			c.ailing(state, f.Resource) < mostIll[state][f.Resource] {
			some = append(some, f)
		}
	}
	return some
}

// anyWell returns one of them.
func (c *chaos) anyWell(state, resource string) *rig.Function {
	some := c.well(state, resource)
	return some[c.random.IntN(len(some))]
}

// seen is the end of a fault that the daemons have to see.
func (c *chaos) seen() { c.settle(true) }

// rises raises one of these counters above the limit.
func rises(state string, counters ...string) func(*chaos) func() {
	return func(c *chaos) func() {
		counter, resource := counters[c.random.IntN(len(counters))], rig.VF
		if isAER(counter) {
			resource = ""
		}
		f := c.anyWell(state, resource)
		limit := ruleOf(state, counter).Above
		by := limit + 1 + c.random.Uint64N(limit+1)
		a := c.ails(f, state)
		c.did("%s of %s rises by %d", counter, f.Address, by)
		c.must(f.Add(counter, by))
		a.touch(0)
		return c.seen
	}
}

func isAER(counter string) bool {
	return slices.Contains([]string{"aer_correctable", "aer_nonfatal", "aer_fatal"}, counter)
}

func ruleOf(state, counter string) health.Rule {
	rules := health.Default().Rules
	return rules[slices.IndexFunc(rules, func(r health.Rule) bool {
		return r.State.String() == state && r.Counter == counter
	})]
}

// portFlaps lets a port go down and up with each call of the kubelet to a plugin, so briefly that nobody
// reads a port without a link.
func portFlaps(c *chaos) func() {
	f := c.anyWell(device.Degraded, rig.VF)
	a := c.ails(f, device.Degraded)
	flap := func() {
		c.must(f.Add("carrier_changes", 2))
		a.touch(0)
	}
	flap()
	c.hook = func(node.Call, bool) { flap() }
	return c.seen
}

// linkFlaps lets a port go down or up with each call of the kubelet to a plugin.
func linkFlaps(c *chaos) func() {
	f := c.anyWell(device.Failed, rig.VF)
	a := c.ails(f, device.Failed)
	up := true
	flap := func() {
		up = !up
		c.must(f.SetLink(up))
		c.must(f.Add("carrier_changes", 1))
		if !up {
			c.must(f.Add("link_downed", 1))
		}
		a.touch(0)
	}
	flap()
	c.hook = func(node.Call, bool) { flap() }
	return func() {
		if !up {
			flap()
		}
		a.touch(0)
		c.seen()
	}
}

// linkNarrows takes half of the lanes of a PCI Express link, and gives them back later.
func linkNarrows(c *chaos) func() {
	f := c.anyWell(device.Degraded, "")
	a := c.ails(f, device.Degraded)
	c.must(f.SetNarrow(true))
	return c.lasts(a, func() error { return f.SetNarrow(false) })
}

// portDown takes the link of a port away, and brings it back later.
func portDown(c *chaos) func() {
	f := c.anyWell(device.Failed, rig.VF)
	a := c.ails(f, device.Failed)
	c.must(f.SetLink(false))
	c.must(f.Add("carrier_changes", 1))
	return c.lasts(a, func() error {
		if err := f.Add("carrier_changes", 1); err != nil {
			return err
		}
		return f.SetLink(true)
	})
}

// lasts is the end of a fault whose cause goes on beyond it, for up to 20 seconds.
func (c *chaos) lasts(a *ailment, heal func() error) (end func()) {
	a.heal = heal
	return func() {
		c.seen()
		a.healAt = time.Now().Add(time.Duration(c.random.Int64N(int64(20 * time.Second))))
	}
}
