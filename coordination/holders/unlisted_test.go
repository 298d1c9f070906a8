// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The container of the last Allocates is remembered while the list of a kubelet that has just started lacks
// its pod. One question whose source does not answer, or one read of an unknown kubelet, forgets it: the
// kubelet's list then has the pod as started, and its device is nobody's.
func TestLostNewestSurvivesAnUnknownSearch(t *testing.T) {
	t.Parallel()
	list := func(uids ...string) kubelet.Reading[holders.Pods] {
		p := holders.OfKubelet()
		p.All = false
		for _, uid := range uids {
			p.Names[uid], p.Started[uid] = kubelet.Pod{Name: "of-" + uid}, true
		}
		return kubelet.Read(*p, nil)
	}
	silent := kubelet.Read(holders.Pods{}, errors.New("no answer"))
	type step struct {
		pods kubelet.Reading[holders.Pods]
		life string
	}
	for name, steps := range map[string][]step{
		"a list, and no answer": {{list("u1"), "second"}, {silent, "second"}, {list("u1", "u2"), "second"}},
		"no answer, a list, no answer": {
			{silent, "second"}, {list("u1"), "second"}, {silent, "second"}, {list("u1", "u2"), "second"},
		},
		"an unknown kubelet":       {{list("u1"), "second"}, {list("u1"), ""}, {list("u1", "u2"), "second"}},
		"an unknown kubelet first": {{list("u1"), ""}, {list("u1", "u2"), "second"}},
		"a third kubelet": {
			{list("u1"), "second"}, {list("u1"), "third"}, {list("u1", "u2"), "third"},
		},
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
		for _, s := range steps {
			last = holders.Find(holders.Sources{
				Checkpoint: kubelet.Read(record(t, nil), nil), Pods: s.pods, Life: s.life,
				Known: last.Known, Before: last.Holders, Unlisted: last.Unlisted,
			})
		}
		want := []string{"g1: u1 of-u1/c", "g2: u2 of-u2/c"}
		if diff := cmp.Diff(want, held(last.Holders)); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", name, diff)
		}
	}
}
