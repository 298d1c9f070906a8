// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
)

// The health of PFs and GPUs in the campaign: what the daemons report has to be what was done to the
// counters, from a few seconds after it on until a minute after its end, and nothing else.

// settling bounds the wait for the daemons and the kubelet to know of an ailment. It takes two seconds where
// the machine has nothing else to do; the campaign reports the longest.
const settling = 30 * time.Second

// ailment is what was done to a PF or GPU.
type ailment struct {
	*rig.Function
	state string // device.Failed or device.Degraded

	begin    time.Time
	position int  // in the daemons' log at the begin
	seen     bool // the daemons have reported the state

	heal   func() error // ends a cause that lasts; nil after its end, or for counters
	healAt time.Time
	// of the recovery, without a cause that lasts
	earliest, latest time.Time
}

// touch notes that the cause was there a moment ago, for at most so long.
func (a *ailment) touch(ago time.Duration) {
	const longest, slack = time.Minute, 15 * time.Second // longest is that of the windows of rules
	quiet := health.Default().Quiet
	a.earliest = time.Now().Add(quiet - ago)
	a.latest = time.Now().Add(quiet + longest + slack)
}

// ails begins an ailment, by a change of counters that the daemons have not seen.
func (c *chaos) ails(f *rig.Function, state string) *ailment {
	a := &ailment{Function: f, state: state, begin: time.Now(), position: c.Pair.Log.Len()}
	c.did("%s gets %s", f.Address, state)
	c.ill[f.Address] = a
	c.setFailed()
	if c.change == 0 {
		c.change = c.history.Call(history.Event{Kind: history.Health})
	}
	return a
}

// setFailed tells the rig which devices the kubelet can lack.
func (c *chaos) setFailed() {
	ids := map[string]bool{}
	for _, a := range c.ill {
		for _, id := range a.Devices {
			ids[id] = ids[id] || a.state == device.Failed
		}
	}
	c.SetFailed(ids)
}

// ailing returns the number of ailments that have a state, of PFs or of GPUs.
func (c *chaos) ailing(state, resource string) int {
	n := 0
	for _, a := range c.ill {
		if a.state == state && a.Resource == resource {
			n++
		}
	}
	return n
}

// settle waits until the daemons report the health that they have to, and the kubelet has all healthy devices
// of the daemons and no other. With all, this includes what has just been done to counters. It reports
// whether the same devices have failed as before.
func (c *chaos) settle(all bool) (same bool) {
	c.t.Helper()
	c.mend()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(settling)
	for {
		found, unsettled := c.reported(all)
		if unsettled == "" {
			return c.take(found)
		}
		select {
		case <-tick.C:
		case <-late:
			c.t.Errorf("health does not settle: %s", unsettled)
			c.failIfBroken()
			return false
		}
	}
}

// mend ends causes that have lasted long enough.
func (c *chaos) mend() {
	for _, a := range c.ill {
		if a.heal == nil || a.healAt.IsZero() || time.Now().Before(a.healAt) {
			continue
		}
		c.did("%s is mended", a.Address)
		c.must(a.heal())
		a.heal = nil
		a.touch(2 * health.Default().Interval)
	}
}

// states are the states of functions other than good.
type states map[topology.Address]string

// reported returns the health of functions by the coordinator, and what is not as it has to be.
func (c *chaos) reported(all bool) (found states, unsettled string) {
	now := time.Now()
	status, err := c.Status(deadline(c.t))
	c.must(err)
	found, reasons := states{}, map[topology.Address]string{}
	for _, resource := range status.GetResources() {
		healthy := map[string]bool{}
		for _, d := range resource.GetDevices() {
			one := d.GetDevice()
			of := c.owner[one.GetId()]
			if state := device.Health(one); state != "" {
				found[of], reasons[of] = state, one.GetReason()
			}
			if one.GetHealthy() {
				healthy[one.GetId()] = true
			}
		}
		given := c.Node.Inventory(resource.GetName())
		if !maps.EqualFunc(healthy, given, func(bool, []int) bool { return true }) {
			unsettled = fmt.Sprintf("%d of %d healthy %s are the kubelet's", len(given), len(healthy),
				resource.GetName())
		}
	}
	for _, f := range c.Functions() {
		if why := c.differs(f.Address, found[f.Address], all, now); why != "" {
			unsettled = fmt.Sprintf("%s is %q (%s): %s", f.Address, found[f.Address], reasons[f.Address], why)
		}
	}
	return found, unsettled
}

// differs returns why a function cannot be in a state, or "".
func (c *chaos) differs(function topology.Address, state string, all bool, now time.Time) string {
	a := c.ill[function]
	switch {
	case a == nil && state != "":
		return "nothing was done to it"
	case a == nil:
	case a.heal == nil && now.After(a.latest):
		if state != "" {
			return "the cause is long over"
		}
	case state == a.state:
	case state == device.Failed:
		return "it is only " + a.state
	case !a.seen && !all, c.canBeGood(a):
	default:
		return "it has to be " + a.state
	}
	return ""
}

// canBeGood reports whether the ailment can be over: after a minute without cause, or for a daemon that has
// started since.
func (c *chaos) canBeGood(a *ailment) bool {
	if a.heal != nil {
		return false
	}
	lines, _ := c.Pair.Log.Since(a.position)
	return !time.Now().Before(a.earliest) || slices.ContainsFunc(lines, func(line pair.Line) bool {
		return line.Message == "started" && (line.Daemon == c.Pair.GPU.Name()) == (a.Resource == c.GPU)
	})
}

// take notes the health that the daemons report, and reports whether the same devices have failed as before.
func (c *chaos) take(found states) (same bool) {
	for function, a := range c.ill {
		switch state := found[function]; {
		case state == a.state && !a.seen:
			a.seen = true
			c.sees(a)
		case state == "" && a.seen:
			c.did("%s is good again", function)
			delete(c.ill, function)
		case state == "" && a.heal == nil && time.Now().After(a.latest): // over before a daemon looked
			delete(c.ill, function)
		}
	}
	c.setFailed()
	before := c.found
	c.found = found
	c.noteHealth(found)
	return maps.Equal(failedOnes(before), failedOnes(found))
}

// sees notes that the daemons and the kubelet have seen an ailment.
func (c *chaos) sees(a *ailment) {
	took := time.Since(a.begin)
	c.slowest[a.state] = max(c.slowest[a.state], took)
	c.did("%s is %s after %v", a.Address, a.state, took.Round(time.Millisecond))
	c.happened()
}

func failedOnes(all states) states {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(_ topology.Address, state string) bool { return state != device.Failed })
	return some
}

// noteHealth records the health at the end of a change, and that it can change from now on.
func (c *chaos) noteHealth(found states) {
	sets := map[string]map[string][]string{device.Failed: {}, device.Degraded: {}}
	for _, f := range c.Functions() {
		if state := found[f.Address]; state != "" {
			sets[state][f.Resource] = append(sets[state][f.Resource], f.Devices...)
		}
	}
	c.history.Return(c.change, func(e *history.Event) {
		e.Failed, e.Degraded = sets[device.Failed], sets[device.Degraded]
	})
	if c.change = 0; len(c.ill) > 0 {
		c.change = c.history.Call(history.Event{Kind: history.Health})
	}
}

// isFailing reports whether devices fail at this moment.
func (c *chaos) isFailing() bool {
	for _, a := range c.ill {
		if a.state == device.Failed && !a.seen {
			return true
		}
	}
	return false
}
