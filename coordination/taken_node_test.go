// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// Either plugin's word that an Allocate has returned reaches the server.
func TestReturned(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "run")
	server, gpu, _ := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	_, vf, _ := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	c := server.election.serving.Load().coordinator
	var looks atomic.Int32
	c.Kubelet = lister{c.Kubelet, func() (kubelet.View, error) {
		looks.Add(1)
		return kubelet.View{}, errors.New("it is counted")
	}}
	for m, id := range map[*Member]string{gpu: "gpu0", vf: "vf0"} {
		if _, err := m.report(t.Context(), []string{id}); err != nil {
			t.Fatal(err)
		}
		before := looks.Load()
		if choose(t, m, []string{id}, nil, 1); looks.Load() != before {
			t.Errorf("%s: the server does not know of the open Allocate", m.announced.resource)
		}
		m.Returned(t.Context(), []string{id}, false)
		if choose(t, m, []string{id}, nil, 1); looks.Load() == before {
			t.Errorf("%s: the server does not know that the Allocate has returned", m.announced.resource)
		}
	}
}

// The server hears of a failed Allocate before the kubelet does, also while it takes an announcement of the
// plugin over: the kubelet then goes on with another container.
func TestFailedAllocateIsReportedAtOnce(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	if _, _, err := members[vfs].Allocated(t.Context(), []string{"vf0"}); err != nil {
		t.Fatal(err)
	}
	reading, read := make(chan struct{}), make(chan struct{})
	own := c.Machine
	c.Machine = refreshed{own, func(a device.Announcement) error {
		close(reading)
		<-read
		return own.Refresh(a)
	}}
	members[vfs].Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf2", Address: topology.Address{Bus: 4}, Healthy: true}},
	})
	<-reading
	members[vfs].Returned(t.Context(), []string{"vf0"}, true)
	for _, r := range c.Resources() {
		for _, d := range r.GetDevices() {
			if d.GetAllocated() {
				t.Errorf("%s is allocated", d.GetDevice().GetId())
			}
		}
	}
	close(read)
}

// What a plugin publishes counts as taken over when the server goes by it, not when it is sent.
func TestAwaitTaken(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	reading, read := make(chan struct{}), make(chan struct{})
	own := c.Machine
	c.Machine = refreshed{own, func(a device.Announcement) error {
		close(reading)
		<-read
		return own.Refresh(a)
	}}
	members[vfs].Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf2", Address: topology.Address{Bus: 4}, Healthy: true}},
	})
	<-reading
	select {
	case <-members[vfs].announced.taken:
		t.Error("taken over before the PCI tree was read")
	default:
	}
	close(read)
	members[vfs].AwaitTaken(t.Context())
	for _, r := range c.Resources() {
		for _, d := range r.GetDevices() {
			if d := d.GetDevice(); d.GetId() == "vf2" && d.GetHealthy() {
				return
			}
		}
	}
	t.Error("the server does not go by what is taken over")
}
