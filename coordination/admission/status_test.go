// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

const a, b, bridge = "0000:08:00.0", "0000:09:00.0", "pci0000:80"

// counted compares holdings by their counts.
var counted = cmp.Options{protocmp.Transform(), cmpopts.IgnoreUnexported(Holding{})}

// on are devices on switches, all of one container; nil for nobody's.
func on(kind string, owner *api.Owner, switches ...string) *api.Resource {
	r := &api.Resource{Name: kind, Kind: kind}
	for _, name := range switches {
		r.Devices = append(r.Devices, &api.DeviceStatus{Switch: name, Allocated: true, Owner: owner})
	}
	return r
}

func owned(container string) *api.Owner {
	return &api.Owner{Namespace: "team", Pod: "train", Container: container}
}

// devicesOf returns the devices of all resources.
func devicesOf(resources []*api.Resource) (all []*api.DeviceStatus) {
	for _, r := range resources {
		all = append(all, r.GetDevices()...)
	}
	return all
}

func TestFindDegraded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		gpus, vfs []string
		want      int // GPUs that have no VF; 0 for a container that is not degraded
	}{
		{"pairs", []string{a, b}, []string{b, a}, 0},
		{"two on one switch", []string{a, a}, []string{a, b}, 1},
		{"all apart", []string{a, a}, []string{b, b}, 2},
		{"more VFs than GPUs", []string{a}, []string{b, a}, 0},
		{"a VF for two", []string{a, a, b, b}, []string{a, b}, 0},
		{"a VF for four", []string{a, a, b, b}, []string{a}, 2},
		{"no switch", []string{bridge}, []string{bridge}, 1},
		{"GPUs alone", []string{a, b}, nil, 0},
		{"VFs alone", nil, []string{a, b}, 0},
	} {
		who := owned("worker")
		var want []*Holding
		if c.want > 0 {
			want = []*Holding{{Owner: who, GPUs: len(c.gpus), VFs: len(c.vfs), Apart: c.want}}
		}
		got := FindDegraded([]*api.Resource{on("gpu", who, c.gpus...), on("vf", who, c.vfs...)})
		if diff := cmp.Diff(want, got, counted...); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		nobody := []*api.Resource{on("gpu", nil, c.gpus...), on("vf", nil, c.vfs...)}
		if got := FindDegraded(nobody); len(got) != 0 {
			t.Errorf("%s: %v of nobody's devices", c.name, got)
		}
	}
}

// Containers of one pod are counted apart from each other.
func TestDegradedOfAPod(t *testing.T) {
	t.Parallel()
	got := FindDegraded([]*api.Resource{
		on("gpu", owned("z"), a), on("gpu", owned("c"), a), on("gpu", owned("pairs"), b),
		on("vf", owned("z"), b), on("vf", owned("c"), b), on("vf", owned("pairs"), b),
	})
	want := []*Holding{
		{Owner: owned("c"), GPUs: 1, VFs: 1, Apart: 1}, {Owner: owned("z"), GPUs: 1, VFs: 1, Apart: 1},
	}
	if diff := cmp.Diff(want, got, counted...); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A VF that two resources have, before and after a change of names, counts once; replicas count each. Pods of
// one name are told apart by their UIDs.
func TestUnitsCountOnce(t *testing.T) {
	t.Parallel()
	unit := func(r *api.Resource, unit string, shared bool) *api.Resource {
		for _, d := range r.GetDevices() {
			d.Device = &api.Device{Unit: unit, Shared: shared}
		}
		return r
	}
	who, later := owned("worker"), owned("worker")
	who.Uid, later.Uid = "1", "2"
	got := FindDegraded([]*api.Resource{
		unit(on("gpu", who, a, a), "gpu", true), unit(on("vf", who, b), "vf", false),
		unit(on("vf", who, b), "vf", false),
		on("gpu", later, a), on("vf", later, a),
	})
	want := []*Holding{{Owner: who, GPUs: 2, VFs: 1, Apart: 2}}
	if diff := cmp.Diff(want, got, counted...); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Without a request source the checkpoint has only the UID of the newest pod. Status names the pod all the
// same, also after a List between the halves has shown the owner.
func TestOwnerOfTheNewestPod(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"at once": 0, "after a moment": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
			a.keepCheckpoint()
			pod := a.add("train-0")
			a.serve(pod, gpus, 0, 2)
			a.now = a.now.Add(pause)
			a.serve(pod, vfs, 0, 2)
			a.keep(pod)
			held := 0
			for _, d := range devicesOf(a.coordinator.Resources()) {
				if !d.GetAllocated() {
					continue
				}
				if held++; d.GetOwner().GetPod() != pod.Name {
					t.Errorf("%s has the owner %v", d.GetDevice().GetId(), d.GetOwner())
				}
			}
			if held != 4 {
				t.Errorf("%d devices are held", held)
			}
		})
	}
}

// The kubelet hangs. Three people ask for the status, and wait for one survey together; a fourth, who waits
// for 100 ms at most, gets the status by the last decision then.
func TestSurveyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
		reads := 0
		sourcesOf(a.coordinator).get = hangOf
		sourcesOf(a.coordinator).pods = func(ctx context.Context) (intent.Answer, error) {
			reads++
			return hang[intent.Answer](ctx)
		}
		begun := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { a.coordinator.Status(context.Background()) })
		}
		synctest.Wait()
		const patience = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if got := a.coordinator.Status(ctx); len(got.GetResources()) != 2 {
			t.Errorf("%d resources", len(got.GetResources()))
		}
		if took := time.Since(begun); took != patience {
			t.Errorf("a caller with a deadline of %v waited %v", patience, took)
		}
		all.Wait()
		if took := time.Since(begun); took != surveyTimeout || reads != 1 {
			t.Errorf("the callers took %v and %d reads", took, reads)
		}
	})
}
