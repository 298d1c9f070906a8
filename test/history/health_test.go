// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/test/history"
)

// TestHealthIsJudged: no container gets a failed device, and none a degraded one in place of a good one that
// is as near. While the health changes, an answer can be of the health before or after.
func TestHealthIsJudged(t *testing.T) {
	m := machine(t)
	gpu, vf := near(t, m, 0)
	otherGPU, otherVF := near(t, m, 1)
	one := func(resource, id string) map[string][]string { return map[string][]string{resource: {id}} }
	failed := history.Event{Kind: history.Health, Failed: one(vfs, vf)}
	degraded := history.Event{Kind: history.Health, Degraded: one(vfs, vf)}
	whole := func(s script, gpu, vf string) {
		s.ask("a", gpus, gpu)
		s.allocate("a", gpus, gpu, "")
		s.ask("a", vfs, vf)
		s.allocate("a", vfs, vf, "")
	}
	for name, c := range map[string]struct {
		write   func(script)
		promise history.Promise
	}{
		"a failed device is passed over": {
			func(s script) { s.Note(failed); s.arrive("a", false); whole(s, otherGPU, otherVF) }, ""},
		"a failed device": {
			func(s script) { s.Note(failed); s.arrive("a", false); s.allocate("a", vfs, vf, "") },
			history.FailedGiven},
		"the partner of a failed device": {
			func(s script) { s.Note(failed); s.arrive("a", false); s.ask("a", gpus, gpu) }, history.NotBest},
		"the partner of a degraded device": {
			func(s script) { s.Note(degraded); s.arrive("a", false); s.ask("a", gpus, gpu) }, history.NotBest},
		"a degraded device near the given one": {
			func(s script) {
				s.arrive("a", false)
				s.ask("a", gpus, gpu)
				s.allocate("a", gpus, gpu, "")
				s.Note(degraded)
				s.ask("a", vfs, vf)
			}, ""},
		"a device that is good again": {
			func(s script) {
				s.Note(failed)
				s.Note(history.Event{Kind: history.Health})
				s.arrive("a", false)
				whole(s, gpu, vf)
			}, ""},
		"a device that fails meanwhile": {
			func(s script) {
				change := s.Call(history.Event{Kind: history.Health})
				s.arrive("a", false)
				whole(s, gpu, vf)
				s.Return(change, func(e *history.Event) { e.Failed = failed.Failed })
			}, ""},
		"a far device while another gets degraded": {
			func(s script) {
				change := s.Call(history.Event{Kind: history.Health})
				s.arrive("a", false)
				s.allocate("a", gpus, gpu, "")
				s.ask("a", vfs, otherVF)
				s.Return(change, func(e *history.Event) { e.Degraded = degraded.Degraded })
			}, history.NotBest},
		"a failed device while another gets degraded": {
			func(s script) {
				s.Note(failed)
				change := s.Call(history.Event{Kind: history.Health})
				s.arrive("a", false)
				s.allocate("a", vfs, vf, "")
				s.Return(change, func(e *history.Event) { e.Failed, e.Degraded = failed.Failed, degraded.Degraded })
			}, history.FailedGiven},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(m)
			c.write(s)
			if got := breachOf(t, s, m, history.Rules{}); got != c.promise {
				t.Errorf("%q, want %q", got, c.promise)
			}
		})
	}
}
