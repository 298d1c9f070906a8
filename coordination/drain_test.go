// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// An Allocate that is answered while a server drains, whichever plugin asks, is known to the next
// one.
func TestNextServerKnowsWhatTheDrainAnswered(t *testing.T) {
	t.Parallel()
	for _, name := range []string{gpus, vfs} {
		answered := false
		for range 20 { // a drain does not wait for ever: on a busy machine it can end before the answer
			if answered = drains(t, name); answered {
				break
			}
		}
		if !answered {
			t.Errorf("%s: no drain waits for an answer", name)
		}
	}
}

// drains stops a server while it answers an Allocate of a resource, and reports whether that was answered.
func drains(t *testing.T, name string) bool {
	dir := filepath.Join(shortDir(t), "run")
	server, gpu, stop := join(t, Config{RunDir: dir}, gpus, oneGPU, gpus)
	_, vf, stopClient := join(t, Config{RunDir: dir}, vfs, oneVF, gpus, vfs)
	defer stopClient()
	members := map[string]*Member{gpus: gpu, vfs: vf}
	c := server.election.serving.Load().coordinator
	own, began, goOn := c.Kubelet, make(chan struct{}), make(chan struct{})
	c.Kubelet = checkpoints{own, func() (kubelet.Checkpoint, error) {
		close(began)
		<-goOn
		return own.Checkpoint()
	}}
	id := map[string]string{gpus: "gpu0", vfs: "vf0"}[name]
	answers := make(chan error, 1)
	go func() {
		_, err := members[name].report(t.Context(), members[name].StartAllocate([]string{id}))
		answers <- err
	}()
	<-began
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	for server.election.serving.Load() != nil { // until it drains, of which nobody is told
		runtime.Gosched()
	}
	close(goOn)
	err := <-answers
	<-stopped
	if err != nil {
		return false
	}
	for _, r := range await(t, dir, connected(vfs)).GetResources() {
		for _, d := range r.GetDevices() {
			if d.GetDevice().GetId() == id && d.GetAllocated() {
				return true
			}
		}
	}
	t.Errorf("the next server has %s as given to nobody", id)
	return true
}

// The next server takes the lock after the last write of the ending server, however late, else it would go on
// from an older file, and the late write would replace the newer file.
func TestLateWriteHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := shortDir(t)
		release, err := tryLock(dir)
		if err != nil {
			t.Fatal(err)
		}
		var saving sync.WaitGroup
		saving.Go(func() { <-time.After(2 * writeTimeout) })
		began := time.Now()
		if awaitEnd(&saving, writeTimeout, release); time.Since(began) != writeTimeout {
			t.Errorf("waited for %s, want %s", time.Since(began), writeTimeout)
		}
		if _, err := tryLock(dir); !errors.Is(err, errLocked) {
			t.Errorf("the lock during the write: %v", err)
		}
		<-time.After(2 * writeTimeout)
		synctest.Wait()
		release, err = tryLock(dir)
		if err != nil {
			t.Fatalf("the lock after the write: %v", err)
		}
		release()
	})
}
