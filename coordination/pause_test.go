// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/test/scale"
)

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
	return coordinatorOf(server), gpu, vf, gate
}

// reportWhilePaused reports an Allocate to a stopped server, which then goes on and answers.
func reportWhilePaused(t *testing.T, vf *Member, gate *sync.RWMutex) *Allocate {
	t.Helper()
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
	return next
}

// A server that was stopped reads the end of an Allocate and the next Allocate of the device at once: of an
// init container and an app container, or of a rejected pod and the next one. The next one is open.
func TestNextAllocateAfterAPause(t *testing.T) {
	for name, answered := range map[string]bool{"no answer": false, "no answer to the end": true} {
		t.Run(name, func(t *testing.T) {
			c, gpu, vf, gate := pausable(t)
			looks := countLooks(c)
			for range scale.Rounds(20) {
				var a *Allocate
				if answered {
					a = allocate(t, vf, "vf0")
				}
				gate.Lock()
				if !answered {
					a = allocate(t, vf, "vf0")
				}
				vf.Returned(t.Context(), a, false)
				next := reportWhilePaused(t, vf, gate)
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
	for range scale.Rounds(40) {
		a := allocate(t, vf, "vf0")
		gate.Lock()
		vf.Returned(t.Context(), a, true) // the plugin waits in vain: the next pod comes
		next := reportWhilePaused(t, vf, gate)
		<-time.After(20 * time.Millisecond)
		if !isHeld(c) {
			t.Fatal("the device of a container is free")
		}
		vf.Returned(t.Context(), next, false)
	}
}
