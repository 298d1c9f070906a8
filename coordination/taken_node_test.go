// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
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
		m.Returned([]string{id}, false)
		for looks.Load() == before { // the test's own deadline ends that
			choose(t, m, []string{id}, nil, 1)
		}
	}
}

// The word that an Allocate has returned is for the server that was told of it. The next one does not take
// its own Allocate of the same devices for that.
func TestReturnedToAnEarlierServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "run")
	server, _, _ := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	client, err := New(Config{
		RunDir: dir, SysRoot: sysRoot(t), KubeletDir: shortDir(t), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	vf := client.Member(vfs, device.VF)
	vf.Publish(oneVF)
	vf.Returned([]string{"vf0"}, false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	await(t, dir, connected(gpus, vfs))
	if left := len(client.membership.returned); left > 0 {
		t.Errorf("%d words are left for the server", left)
	}
	c := server.election.serving.Load().coordinator
	var looks atomic.Int32
	c.Kubelet = lister{c.Kubelet, func() (kubelet.View, error) {
		looks.Add(1)
		return kubelet.View{}, errors.New("it is counted")
	}}
	if _, err := vf.report(t.Context(), []string{"vf0"}); err != nil {
		t.Fatal(err)
	}
	if choose(t, vf, []string{"vf0"}, nil, 1); looks.Load() > 0 {
		t.Error("the server takes the open Allocate for one that has returned")
	}
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
