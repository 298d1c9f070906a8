// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
)

// TestPodsOfClaims: a pod that replaced the pod of a claim under the same name says nothing about the claim's
// containers, nor does a pod that is gone. The error about a pod that cannot be read names the pod.
func TestPodsOfClaims(t *testing.T) {
	t.Parallel()
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "train", UID: "old"}, {Resource: "pods", Name: "gone", UID: "gone"},
	}
	for _, c := range []struct {
		uid   types.UID // of the pod
		away  bool      // the API server
		found int
		err   string
	}{
		{"old", false, 1, "<nil>"}, {"new", false, 0, "<nil>"},
		{"old", true, 0, "find pod team/train: the API server is away"},
	} {
		server := apiserver.New(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: c.uid},
		})
		if c.away {
			server.Leave()
		}
		s := &claimService{parts: parts{config: Config{Client: client.New(server)}}}
		pods, err := s.readPods(t.Context(), []*resourceapi.ResourceClaim{claim})
		if len(pods) != c.found || fmt.Sprint(err) != c.err {
			t.Errorf("%+v: %d pods, %v", c, len(pods), err)
		}
	}
}

// Two partitions have each other's ID now, as after a boot, and a claim has the first: Prepare refuses that
// one to other claims and gives them the second. What people are told, and what is published, is the same.
func TestHolderOfRenamedDevice(t *testing.T) {
	t.Parallel()
	e := newEarlier(t, smc, 0)
	first, second := &e.machine.GPUs[1], &e.machine.GPUs[2]
	was := first.ID
	first.ID, second.ID = second.ID, first.ID
	e.look()
	var names [2]string // of the devices of the partitions alone
	for name, d := range e.view.State.Pool.Devices {
		if d.Type == pool.TypeGPU && d.GPUs[0] == first.ID {
			names[0] = name
		} else if d.Type == pool.TypeGPU && d.GPUs[0] == second.ID {
			names[1] = name
		}
	}
	claim := claims.Claim{UID: "uid", Namespace: "team", Name: "first", Devices: []claims.Prepared{{
		Device: names[0], GPUs: []string{was}, Units: map[string]string{was: first.Unit().Name},
	}}}
	e.prepared = []claims.Claim{claim}
	e.look()
	content, err := coordination.EncodeClaims(e.prepared)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(e.preparer.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.preparer.Dir, claims.FileName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newParts(Config{})
	p.preparer = e.preparer
	tells := &teller{parts: p, owners: newOwners()}
	told := map[string]bool{}
	for _, r := range tells.listResources(e.view) {
		for _, d := range r.GetDevices() {
			told[d.GetDevice().GetId()] = d.GetAllocated()
		}
	}
	for i, id := range []string{first.ID, second.ID} {
		refused := e.prepare(names[i])
		if told[id] != (refused != nil) {
			t.Errorf("%s is told as allocated: %t, and Prepare says %v", names[i], told[id], refused)
		}
	}
	for _, s := range e.view.State.Pool.Slices {
		for _, d := range s.Devices {
			if len(d.Taints) > 0 {
				t.Errorf("%s is published with %v", d.Name, d.Taints)
			}
		}
	}
}

// TestStatusIsWrittenOnce: a status is written unless the claim has it, with everything in it.
func TestStatusIsWrittenOnce(t *testing.T) {
	t.Parallel()
	device := func(change func(*resourceapi.AllocatedDeviceStatus)) resourceapi.AllocatedDeviceStatus {
		d := resourceapi.AllocatedDeviceStatus{
			Driver: pool.Driver, Pool: "node", Device: "pair", Conditions: []metav1.Condition{{Type: "Ready"}},
			Data:        &runtime.RawExtension{Raw: []byte(`{"gpu":"a"}`)},
			NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "eth1"},
		}
		if change != nil {
			change(&d)
		}
		return d
	}
	for name, c := range map[string]struct {
		change func(*resourceapi.AllocatedDeviceStatus)
		queued int
	}{
		"the same":          {nil, 0},
		"another driver":    {func(d *resourceapi.AllocatedDeviceStatus) { d.Driver = "example.com" }, 1},
		"another device":    {func(d *resourceapi.AllocatedDeviceStatus) { d.Device = "vf" }, 1},
		"another netdev":    {func(d *resourceapi.AllocatedDeviceStatus) { d.NetworkData = nil }, 1},
		"without condition": {func(d *resourceapi.AllocatedDeviceStatus) { d.Conditions = nil }, 1},
		"without data":      {func(d *resourceapi.AllocatedDeviceStatus) { d.Data = nil }, 1},
		"other data":        {func(d *resourceapi.AllocatedDeviceStatus) { d.Data = &runtime.RawExtension{} }, 1},
	} {
		s := newStatuses(nil, slog.New(slog.DiscardHandler))
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{device(c.change)}
		s.queueStatus(claim, []resourceapi.AllocatedDeviceStatus{device(nil)})
		if got := s.queue.Len(); got != c.queued {
			t.Errorf("%s: queued %d, want %d", name, got, c.queued)
		}
		s.dropStatus("uid")
		if len(s.due) > 0 {
			t.Errorf("%s: the status of a claim that is released is still due", name)
		}
		s.queue.ShutDown()
	}
}

// TestStatusOfAReplacedClaim: a claim that has replaced a claim under its name does not get its status. A
// status is written by the driver's name, over other writers of the same devices: an API server refuses apply
// without a name, and a conflict without force.
func TestStatusOfAReplacedClaim(t *testing.T) {
	now := reserved("train-0")
	now.UID = "of another one"
	server := apiserver.New(now)
	server.Refuse = func(r *http.Request) error {
		q := r.URL.Query()
		if r.Method == http.MethodPatch && (q.Get("fieldManager") == "" || q.Get("force") != "true") {
			t.Errorf("applies by %q", q)
		}
		return nil
	}
	s := newStatuses(client.New(server), slog.New(slog.DiscardHandler))
	t.Cleanup(s.queue.ShutDown)
	before := reserved("train-0")
	s.queueStatus(before, []resourceapi.AllocatedDeviceStatus{{Driver: "tandem.dev", Pool: "a", Device: "d"}})
	s.applyStatus(t.Context(), before.UID)
	later := apiserver.Get[*resourceapi.ResourceClaim](server, now.Namespace, now.Name)
	if told := later.Status.Devices; len(told) > 0 {
		t.Errorf("the later claim has the status %v", told)
	}
}
