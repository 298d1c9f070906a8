// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A kubelet has lost its records. While the request source does not answer, List shows the end of a pod that
// it has shown before; a first List of the kubelet shows none.
func TestLostPodEnds(t *testing.T) {
	t.Parallel()
	recorded := record(t, map[string]string{"u1/c": gpus + " g1", "u2/c": gpus + " g2"})
	all := living(false, map[string]string{"u1": "a", "u2": "b"})
	last := holders.Find(holders.Sources{Checkpoint: kubelet.Read(recorded, nil), Pods: all, Life: "first"})
	both := []string{"g1: u1 a/c", "g2: u2 b/c"}
	for i, step := range []struct {
		shown map[string]string
		want  []string
	}{
		{map[string]string{"b/c": ""}, both},
		{map[string]string{"a/c": "", "b/c": ""}, both},
		{map[string]string{"b/c": ""}, both[1:]},
	} {
		shown, _ := view(step.shown).Get()
		shown.Life = "second"
		last = holders.Find(holders.Sources{
			Checkpoint: kubelet.Read(record(t, nil), nil), View: kubelet.Read(shown, nil), Life: "second",
			Pods:  kubelet.Read(holders.Pods{}, errors.New("no answer")),
			Known: last.Known, Before: last.Holders, Looked: true, ListedLife: "second",
		})
		if diff := cmp.Diff(step.want, held(last.Holders)); diff != "" {
			t.Errorf("List %d: held (-want +got):\n%s", i, diff)
		}
	}
}

// A kubelet that has started without its records adds its pods to its list one by one, in the order of their
// creation by the API server's clock. A pod that the list does not have yet holds its devices again once it
// is listed; a whole list without the pod ends it.
func TestLostPodIsListedLater(t *testing.T) {
	t.Parallel()
	recorded := record(t, map[string]string{"u1/c": gpus + " g1", "u2/c": gpus + " g2"})
	names := map[string]string{"u1": "a", "u2": "b"}
	first := holders.Find(holders.Sources{
		Checkpoint: kubelet.Read(recorded, nil), Pods: living(false, names), Life: "first",
	})
	whole := living(true, map[string]string{"u2": "b"})
	younger, both := map[string]string{"u2": "b"}, []string{"g1: u1 a/c", "g2: u2 b/c"}
	silent := kubelet.Read(holders.Pods{}, errors.New("no answer"))
	for name, lists := range map[string][]struct {
		pods kubelet.Reading[holders.Pods]
		want []string
	}{
		"listed later": {{living(false, younger), both[1:]}, {living(false, names), both}},
		"later, after no answer": {
			{living(false, younger), both[1:]}, {silent, both[1:]}, {living(false, names), both},
		},
		"ended by a whole list": {{whole, both[1:]}, {living(false, names), both[1:]}},
		"ended later": {
			{living(false, younger), both[1:]}, {whole, both[1:]}, {living(false, names), both[1:]},
		},
	} {
		last := first
		for i, list := range lists {
			last = holders.Find(holders.Sources{
				Checkpoint: kubelet.Read(record(t, nil), nil), Pods: list.pods, Life: "second",
				Known: last.Known, Before: last.Holders, Unlisted: last.Unlisted,
			})
			if diff := cmp.Diff(list.want, held(last.Holders)); diff != "" {
				t.Errorf("%s, list %d: held (-want +got):\n%s", name, i, diff)
			}
		}
	}
}

// A kubelet has started without its records, and the checkpoint has no container. A container known by its
// Allocates alone runs if its pod has started.
func TestLostContainerOfAllocates(t *testing.T) {
	t.Parallel()
	const first, second = "first kubelet", "second kubelet"
	list := func(started bool, uids ...string) kubelet.Reading[holders.Pods] {
		p := holders.OfKubelet()
		for _, uid := range uids {
			p.Names[uid], p.Started[uid] = kubelet.Pod{Name: "of-" + uid}, started
		}
		return kubelet.Read(*p, nil)
	}
	noList := kubelet.Read(holders.Pods{}, errors.New("no answer"))
	recorded := []string{"g1: u1 of-u1/c"}
	both := []string{"g1: u1 of-u1/c", "g2: u2 of-u2/c"}
	for name, c := range map[string]struct {
		pods kubelet.Reading[holders.Pods]
		life string // of the kubelet at the Allocate
		want []string
	}{
		"started":                  {list(true, "u1", "u2"), first, both},
		"not started":              {list(false, "u1", "u2"), first, recorded},
		"no list":                  {noList, first, both},
		"no list, same kubelet":    {noList, second, recorded},
		"no list, kubelet unknown": {noList, "", recorded},
		"list without the pods":    {list(true, "u3"), first, nil},
	} {
		before := holders.Holders{
			{UID: "u1", Pod: kubelet.Pod{Name: "of-u1"}, Name: "c", Devices: devices(gpus + " g1"), Life: first},
			{UID: "u2", Pod: kubelet.Pod{Name: "of-u2"}, Name: "c", Devices: devices(gpus + " g2"), Life: c.life},
		}
		before[1].Open = true
		known := map[string]holders.Known{
			"u1": {Pod: before[0].Pod, Told: true, Life: first}, "u2": {Pod: before[1].Pod, Told: true, Life: first},
		}
		found := holders.Find(holders.Sources{
			Checkpoint: kubelet.Read(record(t, nil), nil), Pods: c.pods, Known: known, Before: before, Life: second,
		}).Holders
		if diff := cmp.Diff(c.want, held(found)); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", name, diff)
		}
	}
}

// A kubelet without its records gives devices again to a container that starts again: the other containers of
// the pod run with theirs. An init container of the pod has ended.
func TestLostContainerStartsAgain(t *testing.T) {
	t.Parallel()
	pod := kubelet.Pod{Name: "a"}
	of := func(name, id string) holders.Holder {
		return holders.Holder{UID: "u1", Pod: pod, Name: name, Devices: devices(gpus + " " + id), Life: "first"}
	}
	before := holders.Holders{of("c", "g1"), of("init", "g2"), of("other", "g3")}
	before[1].Init = true
	found := holders.Find(holders.Sources{
		Checkpoint: kubelet.Read(record(t, map[string]string{"u1/c": gpus + " g4"}), nil), Before: before,
		Pods: living(true, map[string]string{"u1": "a"}), Life: "second",
	}).Holders
	if diff := cmp.Diff([]string{"g3: u1 a/other", "g4: u1 a/c"}, held(found)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// Without checkpoint and request source, a device that the kubelet offers is still that of a container whose
// record is lost.
func TestLostContainerWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	pod := kubelet.Pod{Name: "a"}
	lost := holders.Holder{UID: "u1", Pod: pod, Name: "c", Devices: devices(gpus + " g1"), Lost: true}
	recorded := holders.Holder{UID: "u2", Name: "c", Devices: devices(gpus + " g2")}
	found := holders.Find(holders.Sources{
		Checkpoint: kubelet.Read(kubelet.Checkpoint{}, errors.New("no file")), Life: "second",
		View: view(map[string]string{"a/c": ""}), Pods: kubelet.Read(holders.Pods{}, errors.New("no answer")),
		Before: holders.Holders{lost, recorded}, Known: map[string]holders.Known{"u1": {Pod: pod, Told: true}},
		Question: &api.PreferRequest{Resource: gpus, Available: []string{"g1", "g2"}},
	}).Holders
	if diff := cmp.Diff([]string{"g1: u1 a/c"}, held(found)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}
