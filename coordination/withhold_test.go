// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/checkpoint"
)

const heldVF, freeVF = "0000:0c:00.1", "0000:0c:00.2"

// withholding is a withholder with a checkpoint, whose pod holds heldVF as "old/vf".
type withholding struct {
	*withholder
	t       *testing.T
	dir     string // of the kubelet
	damage  error  // of the checkpoint
	pods    []intent.Pod
	unknown bool   // the pods
	life    string // of the kubelet
	source  intent.Source
}

func newWithholding(t *testing.T) *withholding {
	t.Helper()
	w := &withholding{
		t: t, dir: t.TempDir(), pods: []intent.Pod{{UID: "holder"}}, life: "first", source: intent.PodsAPI,
	}
	w.give(map[string]string{"holder": heldVF})
	config := &Config{KubeletDir: w.dir, Log: slog.New(slog.DiscardHandler)}
	w.withholder = newWithholder(config, func(context.Context) (intent.Answer, error) {
		if w.unknown {
			return intent.Answer{}, errors.New("no source")
		}
		return intent.Answer{Source: w.source, Pods: w.pods}, nil
	})
	w.withholder.life = func() string { return w.life }
	read := w.withholder.recorded
	w.withholder.recorded = func() (kubelet.Checkpoint, error) {
		if w.damage != nil {
			return kubelet.Checkpoint{}, w.damage
		}
		return read()
	}
	return w
}

// give writes a checkpoint in which pods have a device each, by UID.
func (w *withholding) give(devices map[string]string) {
	w.t.Helper()
	var all []checkpoint.Allocation
	for uid, id := range devices {
		all = append(all, checkpoint.Allocation{
			PodUID: uid, Container: "main", Resource: "old/vf", Devices: map[string][]string{"-1": {id}},
		})
	}
	if err := checkpoint.Write(w.dir, all, nil); err != nil {
		w.t.Fatal(err)
	}
}

// healthy returns the VFs that are healthy as a resource.
func (w *withholding) healthy(resource string) (healthy []string) {
	all, _ := w.withhold(resource, device.VF, []device.Device{
		{ID: heldVF, Healthy: true}, {ID: freeVF, Healthy: true},
	})
	for _, d := range all {
		if d.Healthy {
			healthy = append(healthy, d.ID)
		}
	}
	return healthy
}

// A device that a container has under another name is withheld until the container has ended. While
// checkpoint or pods are unknown, the last known holders stay.
func TestWithhold(t *testing.T) {
	t.Parallel()
	all, free := []string{heldVF, freeVF}, []string{freeVF}
	for _, c := range []struct {
		name     string
		resource string
		change   func(w *withholding)
		want     []string
	}{
		{"the same name", "old/vf", func(*withholding) {}, all},
		{"another name", "new/vf", func(*withholding) {}, free},
		{"the pod has ended", "new/vf", func(w *withholding) { w.pods = nil }, all},
		{"the checkpoint lacks it", "new/vf", func(w *withholding) { w.give(nil) }, all},
		{"the pods are unknown", "new/vf", func(w *withholding) { w.pods, w.unknown = nil, true }, free},
		{"the checkpoint is unknown", "new/vf", func(w *withholding) { w.damage = errors.New("damaged") }, free},
		{"the pod had ended before the pods are unknown", "new/vf", func(w *withholding) {
			w.give(map[string]string{"holder": heldVF, "alive": freeVF})
			w.pods = []intent.Pod{{UID: "alive"}}
			w.healthy("new/vf")
			w.unknown = true
		}, []string{heldVF}},
	} {
		w := newWithholding(t)
		w.healthy(c.resource)
		c.change(w)
		if got := w.healthy(c.resource); !slices.Equal(got, c.want) {
			t.Errorf("%s: healthy are %v, want %v", c.name, got, c.want)
		}
	}
}

// The plugin learns of a change: of the end of the pod although the checkpoint stays the same, and of a new
// holder.
func TestWithholdChanges(t *testing.T) {
	for name, change := range map[string]func(w *withholding){
		"the pod ends":  func(w *withholding) { w.pods = nil },
		"another holds": func(w *withholding) { w.give(map[string]string{"holder": freeVF}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWithholding(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_, changed := w.withhold("new/vf", device.VF, []device.Device{{ID: heldVF, Healthy: true}})
				change(w)
				go w.run(ctx)
				select {
				case <-changed:
				case <-time.After(time.Minute):
					t.Error("the plugin does not learn of it")
				}
			})
		})
	}
}

// A kubelet that has just started lists its pods one by one, and may lack its records: a pod that its list
// does not have yet keeps its devices, and so does a listed one. The same kubelet's list without a pod that
// it had proves the end.
func TestWithholdWhileKubeletStarts(t *testing.T) {
	t.Parallel()
	listed, withheld, free := []intent.Pod{{UID: "holder"}}, []string{freeVF}, []string{heldVF, freeVF}
	younger, both := []intent.Pod{{UID: "younger"}}, []intent.Pod{{UID: "younger"}, {UID: "holder"}}
	type step struct {
		life    string
		pods    []intent.Pod
		unknown bool
		want    []string
	}
	withRecords := []step{
		{"first", listed, false, withheld}, {"second", nil, false, withheld}, {"", nil, false, withheld},
		{"second", listed, false, withheld}, {"second", nil, false, free}, {"third", nil, false, free},
	}
	without := []step{
		{"first", listed, false, withheld}, {"second", nil, true, withheld}, {"second", listed, false, withheld},
		{"third", listed, false, withheld}, {"third", nil, false, free}, {"third", nil, true, free},
	}
	// A pod that the list does not have yet has its devices withheld once it is listed, as
	// holders.Result.Unlisted keeps them for the coordinator.
	oneByOne := []step{
		{"first", both, false, withheld}, {"second", younger, false, free}, {"second", both, false, withheld},
	}
	for _, c := range []struct {
		source intent.Source
		lost   bool // the records, by the second kubelet
		steps  []step
	}{
		{intent.Kubelet, false, withRecords}, {intent.Kubelet, true, without}, {intent.PodsAPI, true, without},
		{intent.Kubelet, true, oneByOne},
	} {
		w := newWithholding(t)
		w.source = c.source
		for i, s := range c.steps {
			if w.life, w.pods, w.unknown = s.life, s.pods, s.unknown; c.lost && s.life != "first" {
				w.give(nil)
			}
			if got := w.healthy("new/vf"); !slices.Equal(got, s.want) {
				t.Errorf("%s, records lost %t, step %d: healthy are %v, want %v", c.source, c.lost, i, got, s.want)
			}
		}
	}
}

// A static pod comes back with the UID that it had, a hash of the manifest. If the kubelet has freed nothing
// meanwhile, the pod has its devices again, and the checkpoint stays the same.
func TestWithholdForStaticPod(t *testing.T) {
	t.Parallel()
	for name, admit := range map[string]func(w *withholding){
		"with new devices": func(w *withholding) { w.give(map[string]string{"holder": heldVF}) },
		"as it was":        func(*withholding) {},
	} {
		w := newWithholding(t)
		listed := w.pods
		for i, c := range []struct {
			pods []intent.Pod
			want bool
		}{{listed, true}, {nil, false}, {listed, true}} {
			w.pods = c.pods
			admit(w)
			if i == 0 {
				w.healthy("new/vf")
			}
			w.look(false)
			if _, withheld := w.held[kubelet.Device{Resource: "new/vf", ID: heldVF}]; withheld != c.want {
				t.Errorf("%s, step %d: withheld is %t, want %t", name, i, withheld, c.want)
			}
		}
	}
}

// A list that is due again, because a device of it is gone, is that of one resource.
func TestOneListAgain(t *testing.T) {
	t.Parallel()
	w := newWithholding(t)
	_, gone := w.withhold("old/vf", device.VF, nil)
	_, other := w.withhold("new/vf", device.VF, nil)
	w.raise("old/vf")
	<-gone
	select {
	case <-other:
		t.Error("the list of another resource is due")
	default:
	}
	w.raiseAll()
	<-other
}

// A panic of a look costs one look: the last known holders stay, and the next look finds others.
func TestWithholdSurvives(t *testing.T) {
	t.Parallel()
	w := newWithholding(t)
	w.healthy("new/vf")
	read := w.recorded
	w.recorded = func() (kubelet.Checkpoint, error) { panic("a mistake") }
	if got, want := w.healthy("new/vf"), []string{freeVF}; !slices.Equal(got, want) {
		t.Errorf("healthy are %v, want %v", got, want)
	}
	w.recorded, w.pods = read, nil
	if got, want := w.healthy("new/vf"), []string{heldVF, freeVF}; !slices.Equal(got, want) {
		t.Errorf("after the panic: healthy are %v, want %v", got, want)
	}
}
