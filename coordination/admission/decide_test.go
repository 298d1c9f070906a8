// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/scale"
)

// Whatever happens between what a question reads and what it decides, and in whichever order decisions are
// committed: nothing that the kubelet gave is lost, and no device has two owners.
func TestNoOrderOfCommitsLosesADevice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale.Rounds(60)) {
		a := newAdmission(t, "oci-mi300x-derived", 2, seed%2 == 0, seed)
		a.keepCheckpoint()
		d := &disorder{admission: a, random: rand.New(rand.NewPCG(seed, 7))}
		look := sourcesOf(a.coordinator).look
		sourcesOf(a.coordinator).pods = nil // nobody else reads what goes on meanwhile
		sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
			view, err := look(ctx)
			d.meanwhile() // what was read is older than this
			return view, err
		}
		for range 40 {
			d.admit()
			d.check(seed)
		}
		if d.moved == 0 || d.gaveUp == 0 || d.given == 0 {
			t.Errorf("seed %d: the state moved %d times, %d askers gave up, %d devices were given",
				seed, d.moved, d.gaveUp, d.given)
		}
	}
}

// disorder is a kubelet that goes on while a question about it is being answered.
type disorder struct {
	*admission
	random *rand.Rand
	depth  int                // of questions within questions
	cancel context.CancelFunc // of the question that is being answered

	moved, gaveUp, given int
}

// admit has one pod asked for and given what was chosen, or something else; now and then one ends.
func (d *disorder) admit() {
	if len(d.order) > 6 || len(d.order) > 0 && d.random.IntN(3) == 0 {
		d.remove(d.order[d.random.IntN(len(d.order))])
	}
	pod := d.add(fmt.Sprint("pod-", d.created))
	for _, i := range d.random.Perm(2) {
		d.half(pod, []string{gpus, vfs}[i])
	}
	if pod := d.pods[pod]; pod != nil {
		d.record()
	}
}

func (d *disorder) half(pod kubelet.Pod, name string) {
	offered, size := ids(d.aligned(name, []int{d.random.IntN(2)})), 1+d.random.IntN(2)
	if len(offered) < size || d.pods[pod] == nil {
		return
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	if d.depth > 0 {
		cancel() // during another question: its turn does not come in time
	} else {
		d.cancel = cancel
	}
	question := &api.PreferRequest{Resource: name, Available: offered, Size: uint32(size)}
	chosen, _, err := d.coordinator.Prefer(ctx, question)
	if err != nil || d.random.IntN(4) == 0 { // the plugin chose alone, or the kubelet chooses otherwise
		d.random.Shuffle(len(offered), func(i, j int) { offered[i], offered[j] = offered[j], offered[i] })
		chosen = offered[:size]
	}
	d.give(pod, name, chosen)
}

// give is the kubelet's Allocate of devices that are still free.
func (d *disorder) give(pod kubelet.Pod, name string, chosen []string) {
	free := ids(d.free[name])
	taken := func(id string) bool { return !slices.Contains(free, id) }
	if d.pods[pod] == nil || d.pods[pod]["c"][name] != nil || slices.ContainsFunc(chosen, taken) {
		return
	}
	if d.take(pod, name, chosen) == "" {
		d.given += len(chosen)
	}
}

// meanwhile does what can happen while a question is being answered.
func (d *disorder) meanwhile() {
	if d.depth > 1 {
		return
	}
	d.depth++
	defer func() { d.depth-- }()
	before := d.coordinator.current()
	switch d.random.IntN(6) {
	case 0:
		d.cancel()
		d.gaveUp++
	case 1:
		d.announce()
	case 2:
		d.half(d.add(fmt.Sprint("other-", d.created)), []string{gpus, vfs}[d.random.IntN(2)])
	case 3:
		if len(d.order) > 1 {
			d.remove(d.order[d.random.IntN(len(d.order)-1)])
		}
	case 4:
		d.coordinator.Leave(vfs)
	}
	if d.coordinator.current().version != before.version {
		d.moved++
	}
}

// check compares who is said to hold what with what the kubelet gave: all of that has a holder, and by a look
// the right one.
func (d *disorder) check(seed uint64) {
	d.t.Helper()
	before, view := d.coordinator.current(), d.view()
	now := observation{
		view: kubelet.Read(view, nil), checkpoint: kubelet.Read(d.coordinator.Kubelet.Checkpoint()),
	}
	found := holders.Find(now.sources(before, nil)).Holders
	after := newBooks(before.tree, before.resources, found)
	for pod, containers := range d.pods {
		for name, given := range containers["c"] {
			for _, id := range given {
				if before.books().isFree(name, id) {
					d.t.Errorf("seed %d: %s of %s is lost, %v has it", seed, id, name, pod)
				}
				if h := after.holders.Of(name, id); h == nil || h.Pod != pod {
					d.t.Errorf("seed %d: after a look %s of %s is %+v's, %v has it", seed, id, name, h, pod)
				}
			}
		}
	}
}

// snapshot is all that a state says.
func snapshot(t *testing.T, s *state) string {
	t.Helper()
	all := []any{
		s.version, s.resources.Save(), s.allocates, s.found,
		s.open.Container, s.open.Devices, s.open.Files,
	}
	if s.open.Plan != nil {
		all = append(all, s.open.Plan.Devices, s.open.Plan.promised)
	}
	content, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A decision changes nothing that others see before it is committed, nor where it fails.
func TestDecisionWorksOnACopy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale.Rounds(20)) {
		a := newAdmission(t, "oci-mi300x-derived", 2, false, seed)
		a.keepCheckpoint()
		a.mixedLoad(30)
		before := a.coordinator.current()
		saved := snapshot(t, before)
		failure := errors.New("on purpose")
		err := a.coordinator.decide(func(tx *transaction) error {
			for _, r := range tx.resources.All() {
				tx.resources = tx.resources.Leave(r.Name)
			}
			tx.release(tx.open.Container)
			tx.recordAllocate(&recipient{}, holders.Allocate{Resource: gpus, IDs: []string{"x"}})
			if tx.open.Plan != nil {
				clear(tx.open.Plan.Devices)
				clear(tx.open.Plan.promised)
			}
			clear(tx.open.Devices)
			tx.open.Plan, tx.open.Files = nil, nil
			tx.open, tx.known = nil, nil
			return failure
		})
		if !errors.Is(err, failure) || a.coordinator.current() != before {
			t.Fatalf("seed %d: %v, or the state is another one", seed, err)
		}
		if diff := cmp.Diff(saved, snapshot(t, before)); diff != "" {
			t.Errorf("seed %d: the state has changed (-before +after):\n%s", seed, diff)
		}
	}
}
