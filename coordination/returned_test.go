// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// countLooks makes List of the coordinator's kubelet fail, and counts its calls.
func countLooks(c *admission.Coordinator) *atomic.Int32 {
	var looks atomic.Int32
	c.Kubelet = lister{c.Kubelet, func() (kubelet.View, error) {
		looks.Add(1)
		return kubelet.View{}, errors.New("it is counted")
	}}
	return &looks
}

// allocate has a plugin report an Allocate, which stays open.
func allocate(t testing.TB, m *Member, ids ...string) *Allocate {
	t.Helper()
	a := m.StartAllocate(t.Context(), ids)
	if _, _, err := m.Allocated(t.Context(), a); err != nil {
		t.Error(err)
	}
	return a
}

// isHeld reports whether a container has any device.
func isHeld(c *admission.Coordinator) bool { return len(held(c.Resources())) > 0 }

// Either plugin's word that an Allocate has returned reaches the server.
func TestReturned(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "run")
	server, gpu, _ := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	_, vf, _ := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	looks := countLooks(coordinatorOf(server))
	for m, id := range map[*Member]string{gpu: "gpu0", vf: "vf0"} {
		a := allocate(t, m, id)
		before := looks.Load()
		if choose(t, m, []string{id}, nil, 1); looks.Load() != before {
			t.Errorf("%s: the server does not know of the open Allocate", m.announced.resource)
		}
		m.Returned(t.Context(), a, false)
		if choose(t, m, []string{id}, nil, 1); looks.Load() == before {
			t.Errorf("%s: the server does not know that the Allocate has returned", m.announced.resource)
		}
	}
}

// The server hears of a failed Allocate before the kubelet does, also while it takes an announcement of the
// plugin over: the kubelet then goes on with another container.
func TestFailedAllocateIsReportedAtOnce(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := coordinatorOf(server)
	a := allocate(t, members[vfs], "vf0")
	release := publishSlowly(c, members[vfs])
	members[vfs].Returned(t.Context(), a, true)
	if isHeld(c) {
		t.Error("a device is allocated")
	}
	release()
}

// The kubelet waits for an Allocate beside a server that hangs as long as for a question.
func TestAllocateBesideAHungServer(t *testing.T) {
	server, members, _ := serverAndClient(t)
	letGo := hang(server)
	defer letGo()
	for name, id := range map[string]string{gpus: "gpu0", vfs: "vf0"} {
		took := shortest(func() {
			members[name].Returned(t.Context(), allocate(t, members[name], id), false)
		})
		if took > answerLimit {
			t.Errorf("%s: allocated after %s", name, took)
		}
	}
}

// A plugin that the server answers, and that has lost only its stream, reports the end of an Allocate.
func TestReturnedWithoutAStream(t *testing.T) {
	server, members, log := serverAndClient(t)
	breakStream(t, server, members[vfs], log)
	looks := countLooks(coordinatorOf(server))
	members[vfs].Returned(t.Context(), allocate(t, members[vfs], "vf0"), false)
	if choose(t, members[gpus], offered[gpus], nil, 1); looks.Load() == 0 {
		t.Error("the server takes the Allocate for open")
	}
}

// A report that the plugin no longer waits for is about an admission of before: the kubelet has gone on.
func TestLateReportOfAFailure(t *testing.T) {
	server, members, _ := serverAndClient(t)
	own := server.election.serving.Load()
	// the plugin of the VFs has failed the Allocate of another container, and has given up its report to the
	// server, which was stopped; the kubelet has gone on with this one
	members[gpus].Returned(t.Context(), allocate(t, members[gpus], "gpu0"), false)
	if !isHeld(own.coordinator) {
		t.Fatal("nothing is held: this shows nothing")
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = own.Returned(late, &api.ReturnedRequest{Resource: vfs, Devices: []string{"vf1"}, Failed: true})
	if !isHeld(own.coordinator) {
		t.Error("the late report closes the admission of the next container, whose device is free")
	}
}
