// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"

	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
)

// mostEvents bounds the history of a campaign: some 15 events of each admission.
const mostEvents = 1_000_000

// inStorms are the promises that a fault can break. No fault alone makes Tandem refuse a pod, unless devices
// are gone: the machine of the history has all of them.
var inStorms = slices.DeleteFunc(slices.Clone(history.InStorms), func(p history.Promise) bool {
	return p == history.Refused
})

// storm records the begin of a fault.
func (c *chaos) storm(f fault) {
	c.history.Note(history.Event{Kind: history.Fault, Text: f.name})
	switch {
	case f.calm:
	case f.gone:
		c.history.Note(history.Event{Kind: history.Storm, Exempt: history.InStorms})
	default:
		c.history.Note(history.Event{Kind: history.Storm, Exempt: inStorms})
	}
}

// calm records that all daemons and the kubelet are there again, and that Tandem has read all sources since.
func (c *chaos) calm() {
	for _, pod := range c.pods {
		c.Confirm(pod)
	}
	c.history.Note(history.Event{Kind: history.Calm})
}

// excuse exempts the newest admission from promises that depend on a daemon or kubelet that is dead, or on
// devices of a pod that ended meanwhile: the kubelet has not offered these, or nobody can tell.
func (c *chaos) excuse() {
	if c.dead || c.stopped || c.freed == c.admissions {
		c.Excuse(nil, history.Refused, history.NotBest)
	}
}

// checkHistory judges the history of the campaign.
func (c *chaos) checkHistory() {
	c.t.Helper()
	lines, _ := c.Pair.Log.Since(0)
	all := c.Recorded()
	for i, a := range all {
		end := len(lines)
		if i+2 < len(all) {
			end = all[i+2].Position // a line can come after its admission
		}
		c.Excuse(a, c.exempt(lines[a.Position:end])...)
	}
	rules := history.Rules{Names: !c.told()}
	if c.blind {
		rules.Exempt = []history.Promise{history.NotBest, history.Forgotten, history.ForgottenInit}
	}
	if err := history.Check(c.history.History(), c.Judged(), rules); err != nil {
		c.t.Error(err)
	}
}

// exempt returns promises that nobody can keep with these lines in the daemons' log: an answer was late, a
// source told of no annotation, or the plugins have different versions.
func (c *chaos) exempt(lines []pair.Line) []history.Promise {
	var exempt []history.Promise
	untold := func(line pair.Line) bool { return line.Message == "preferred" && !c.isTold(line) }
	switch {
	case slices.ContainsFunc(lines, tellsLateness):
		exempt = append(exempt, history.NoAnswer, history.NotBest, history.NotEnforced, history.Refused)
	case slices.ContainsFunc(lines, choosesApart):
		exempt = append(exempt, history.Refused)
	case slices.ContainsFunc(lines, untold):
		exempt = append(exempt, history.NotEnforced)
	}
	return exempt
}
