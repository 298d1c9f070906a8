// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A kubelet that has started without its records adds its pods to its list one by one. The container of the
// last Allocates, which no search has seen in the checkpoint, runs as others do: it holds its device again
// once the list has its pod as started, and not if the list has its pod as not started.
func TestLostNewestIsListedLater(t *testing.T) {
	t.Parallel()
	list := func(started bool, uids ...string) kubelet.Reading[holders.Pods] {
		p := holders.OfKubelet()
		p.All = false
		for _, uid := range uids {
			p.Names[uid], p.Started[uid] = kubelet.Pod{Name: "of-" + uid}, started
		}
		return kubelet.Read(*p, nil)
	}
	silent := kubelet.Read(holders.Pods{}, errors.New("no answer"))
	started, notStarted := list(true, "u1", "u2"), list(false, "u1", "u2")
	both, first := []string{"g1: u1 of-u1/c", "g2: u2 of-u2/c"}, []string{"g1: u1 of-u1/c"}
	for name, c := range map[string]struct {
		lists []kubelet.Reading[holders.Pods]
		want  []string // after the last list
	}{
		"listed at once":            {[]kubelet.Reading[holders.Pods]{started}, both},
		"listed after no answer":    {[]kubelet.Reading[holders.Pods]{silent, started}, both},
		"listed later":              {[]kubelet.Reading[holders.Pods]{list(true), started}, both},
		"listed later, not started": {[]kubelet.Reading[holders.Pods]{list(true), notStarted}, first},
	} {
		before := holders.Holders{
			{UID: "u1", Pod: kubelet.Pod{Name: "of-u1"}, Name: "c", Devices: devices(gpus + " g1"), Life: "first"},
			{
				UID: "u2", Pod: kubelet.Pod{Name: "of-u2"}, Name: "c", Devices: devices(gpus + " g2"), Life: "first",
				Open: true,
			},
		}
		last := holders.Result{Holders: before, Known: map[string]holders.Known{
			"u1": {Pod: before[0].Pod, Told: true, Life: "first"},
			"u2": {Pod: before[1].Pod, Told: true, Life: "first"},
		}}
		for _, pods := range c.lists {
			last = holders.Find(holders.Sources{
				Checkpoint: kubelet.Read(record(t, nil), nil), Pods: pods, Life: "second",
				Known: last.Known, Before: last.Holders, Unlisted: last.Unlisted,
			})
		}
		if diff := cmp.Diff(c.want, held(last.Holders)); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", name, diff)
		}
	}
}
