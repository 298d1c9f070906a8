// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// listsNever asks about GPUs for a while, and fails if the coordinator calls List meanwhile.
func listsNever(t *testing.T, m *Member, looks *atomic.Int32) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
		if choose(t, m, []string{"gpu0"}, nil, 1); looks.Load() > 0 {
			t.Fatalf("PodResources is listed while the Allocate of a VF is open, after %s", time.Since(start))
		}
	}
}

// listsSoon asks about GPUs until the coordinator calls List.
func listsSoon(t *testing.T, m *Member, looks *atomic.Int32) {
	t.Helper()
	for start := time.Now(); looks.Load() == 0; choose(t, m, []string{"gpu0"}, nil, 1) {
		if time.Since(start) > time.Second {
			t.Fatal("the server takes the Allocate for open")
		}
	}
}

// A server that goes on after a plugin has waited in vain learns that the Allocate is over, whether the
// Allocate or its end had no answer.
func TestEndWithoutAnAnswer(t *testing.T) {
	for name, answered := range map[string]bool{"no answer": false, "no answer to the end": true} {
		t.Run(name, func(t *testing.T) {
			server, members, _ := serverAndClient(t)
			looks := countLooks(server.election.serving.Load().coordinator)
			var a *Allocate
			if answered {
				a = allocate(t, members[vfs], "vf0")
			}
			letGo := hang(server)
			if !answered {
				a = allocate(t, members[vfs], "vf0")
			}
			members[vfs].Returned(t.Context(), a, false)
			letGo()
			listsSoon(t, members[gpus], looks)
		})
	}
}

// The end of an Allocate waits for no announcement.
func TestEndBesideAnAnnouncement(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	defer publishSlowly(c, members[vfs])()
	looks := countLooks(c)
	letGo := hang(server)
	a := allocate(t, members[vfs], "vf0")
	members[vfs].Returned(t.Context(), a, false)
	letGo()
	listsSoon(t, members[gpus], looks)
}

// The late end of an Allocate is not that of the next one of the same devices.
func TestEndOfAnEarlierAllocate(t *testing.T) {
	server, members, _ := serverAndClient(t)
	c := server.election.serving.Load().coordinator
	release := publishSlowly(c, members[vfs])
	letGo := hang(server)
	a := allocate(t, members[vfs], "vf0")       // of a pod
	members[vfs].Returned(t.Context(), a, true) // that is rejected
	letGo()
	looks := countLooks(c)
	next := allocate(t, members[vfs], "vf0")
	listsNever(t, members[gpus], looks)
	release()
	listsNever(t, members[gpus], looks)
	members[vfs].Returned(t.Context(), next, false)
	listsSoon(t, members[gpus], looks)
}

// A stream that breaks is not the end of the plugin: its Allocate is still open.
func TestBrokenStreamEndsNoAllocate(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *Node, *Member, *lockedBuffer){
		"a panic of the server": func(t *testing.T, server *Node, m *Member, log *lockedBuffer) {
			c := server.election.serving.Load().coordinator
			own := c.Machine
			c.Machine = refreshed{own, func(device.Announcement) error { panic("a mistake") }}
			m.Publish(device.Announcement{
				Devices: []device.Device{{ID: "vf0", Address: topology.Address{Bus: 2}, Healthy: true}},
			})
			log.await(t, "lost the coordination server")
			c.Machine = own
		},
		"a rejected announcement of another resource of the plugin": func(
			t *testing.T, _ *Node, m *Member, log *lockedBuffer,
		) {
			for i := range device.MaxResources { // one too many
				m.announced.siblings.add(fmt.Sprintf("nvidia.com/other%d", i), device.VF).publish(oneVF)
			}
			log.await(t, "the server rejected the announcement")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, members, log := serverAndClient(t)
			looks := countLooks(server.election.serving.Load().coordinator)
			allocate(t, members[vfs], "vf0")
			lose(t, server, members[vfs], log)
			listsNever(t, members[gpus], looks)
		})
	}
}

// The server that takes over knows of an open Allocate.
func TestTakeoverDuringAnAllocate(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	_, _, stop := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	next, vf, _ := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	a := allocate(t, vf, "vf0")
	stop()
	for next.election.serving.Load() == nil {
		<-time.After(time.Millisecond)
	}
	_, gpu, _ := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus, vfs) // the next process of the plugin
	looks := countLooks(next.election.serving.Load().coordinator)
	listsNever(t, gpu, looks)
	vf.Returned(t.Context(), a, false)
	listsSoon(t, gpu, looks)
}

// An Allocate without devices, which the coordinator does not answer, is an Allocate like any other.
func TestEndWithoutDevices(t *testing.T) {
	server, members, _ := serverAndClient(t)
	looks := countLooks(server.election.serving.Load().coordinator)
	letGo := hang(server)
	members[vfs].Returned(t.Context(), allocate(t, members[vfs]), false)
	letGo()
	listsSoon(t, members[gpus], looks)
	if members[vfs].client.foreign.Load() {
		t.Error("the plugin takes the server for one of another protocol")
	}
}

// pausedSocket is a socket whose server reads nothing while the gate is locked, as a stopped process.
type pausedSocket struct {
	unixSocket
	gate *sync.RWMutex
}

type pausedListener struct {
	Listener
	gate *sync.RWMutex
}

type pausedConn struct {
	*countedConn
	gate *sync.RWMutex
}

func (s pausedSocket) Listen() (Listener, error) {
	l, err := s.unixSocket.Listen()
	return pausedListener{l, s.gate}, err
}

func (l pausedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return pausedConn{c.(*countedConn), l.gate}, nil
}

func (c pausedConn) Read(p []byte) (int, error) {
	n, err := c.countedConn.Read(p)
	c.gate.RLock()
	defer c.gate.RUnlock()
	return n, err
}

// pausable returns two plugins and the coordinator of one, whose process stops while the gate is locked.
func pausable(t *testing.T) (c *admission.Coordinator, gpu, vf *Member, gate *sync.RWMutex) {
	t.Helper()
	dir := filepath.Join(shortDir(t), "run")
	gate = &sync.RWMutex{}
	socket := pausedSocket{unixSocket{dir}, gate}
	server, gpu, _ := join(t, Config{RunDir: dir, Socket: socket}, gpus, oneGPU, gpus)
	_, vf, _ = join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	return server.election.serving.Load().coordinator, gpu, vf, gate
}

// A server that was stopped reads the end of an Allocate and the next Allocate of the device at once: of an
// init container and an app container, or of a rejected pod and the next one. The next one is open.
func TestNextAllocateAfterAPause(t *testing.T) {
	for name, answered := range map[string]bool{"no answer": false, "no answer to the end": true} {
		t.Run(name, func(t *testing.T) {
			c, gpu, vf, gate := pausable(t)
			looks := countLooks(c)
			for range 20 {
				var a *Allocate
				if answered {
					a = allocate(t, vf, "vf0")
				}
				gate.Lock()
				if !answered {
					a = allocate(t, vf, "vf0")
				}
				vf.Returned(t.Context(), a, false)
				next := vf.StartAllocate(t.Context(), []string{"vf0"})
				reported := make(chan error)
				go func() {
					_, err := vf.report(t.Context(), next)
					reported <- err
				}()
				<-time.After(10 * time.Millisecond)
				gate.Unlock()
				if err := <-reported; err != nil {
					t.Fatal(err)
				}
				looks.Store(0)
				for range 5 {
					if choose(t, gpu, []string{"gpu0"}, nil, 1); looks.Load() > 0 {
						t.Fatal("PodResources is listed while an Allocate is open")
					}
				}
				vf.Returned(t.Context(), next, false)
			}
		})
	}
}

// The report of a failed Allocate that a stopped server reads late, together with the next Allocate of the
// device, frees no device of the next container.
func TestLateFailureAfterAPause(t *testing.T) {
	c, _, vf, gate := pausable(t)
	for range 40 {
		a := allocate(t, vf, "vf0")
		gate.Lock()
		vf.Returned(t.Context(), a, true) // the plugin waits in vain: the next pod comes
		next := vf.StartAllocate(t.Context(), []string{"vf0"})
		reported := make(chan error)
		go func() {
			_, err := vf.report(t.Context(), next)
			reported <- err
		}()
		<-time.After(10 * time.Millisecond)
		gate.Unlock()
		if err := <-reported; err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
		if !isHeld(c) {
			t.Fatal("the device of a container is free")
		}
		vf.Returned(t.Context(), next, false)
	}
}
