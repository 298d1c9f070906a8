// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/survive"
	"github.com/tandem-k8s/tandem/topology"
)

// How soon the other plugin takes over from a dead server: it tries for the lock every electionStep for
// electionBurst after the connection broke, and every electionPause in any case.
const (
	electionStep  = 10 * time.Millisecond
	electionBurst = time.Second
	electionPause = 5 * time.Second
)

// stayElected serves whenever it gets the lock. A run folder that is removed, full or read-only while it runs
// is logged once; the plugin then goes on alone and tries again.
func (n *Node) stayElected(ctx context.Context) {
	var burst time.Time
	var complaint string
	for ctx.Err() == nil {
		n.turn()
		err := survive.Do(n.config.Log, func() error { return n.serveIfElected(ctx) })
		if err != nil && !errors.Is(err, errLocked) && err.Error() != complaint {
			n.config.Log.Error("go on without serving coordination until that is possible",
				"run_dir", n.config.RunDir, "error", err)
		}
		complaint = ""
		if err != nil && !errors.Is(err, errLocked) {
			complaint = err.Error()
		}
		pause, lost := electionPause, n.lost
		switch {
		case survive.Panicked(err): // most likely again: it is the other plugin's turn
			lost = nil
		case time.Now().Before(burst):
			pause = electionStep
		}
		select {
		case <-ctx.Done():
		case <-lost:
			burst = time.Now().Add(electionBurst)
		case <-time.After(pause):
		}
	}
}

// serveIfElected serves while it holds the lock; it returns errLocked at once where the other plugin has it.
func (n *Node) serveIfElected(ctx context.Context) error {
	if err := prepareRunDir(n.config.RunDir); err != nil {
		return err
	}
	release, err := tryLock(n.config.RunDir)
	if err != nil {
		return err
	}
	var saving sync.WaitGroup
	defer awaitEnd(&saving, writeTimeout, release)
	return n.serveLocked(ctx, &saving)
}

// serveLocked serves and writes the coordinator's file until ctx is done. Only the holder of the lock may call
// it. The last write may still be in progress afterwards, as part of saving.
func (n *Node) serveLocked(ctx context.Context, saving *sync.WaitGroup) error {
	pods, err := kubelet.NewPodResources(n.config.KubeletDir)
	if err != nil {
		return err
	}
	defer pods.Close()
	config := admission.Config{
		RunDir:  n.config.RunDir,
		Refresh: n.machine.refresh,
		Newest:  n.machine.newest,
		Get:     pods.Get,
		Recorded: bounded.Read(n.config.Log, bounded.File,
			kubelet.NewCheckpointReader(n.config.KubeletDir).Read),
		Granted:   func() ([]kubelet.Granted, error) { return kubelet.ReadGranted(n.config.KubeletDir) },
		Pods:      n.sources.Pods,
		Alignment: n.config.Intent.Policy.Alignment,
		Policy:    n.policy(),
		Log:       n.config.Log,
		Observer:  n.config.Observer,
	}
	if n.config.Intent.Sources.Has(intent.PodResources) {
		config.Look, config.AllocatableCPUs = pods.List, pods.AllocatableCPUs
		config.NodeCPUs = func() map[int]topology.CPUSet { return topology.CPUs(os.DirFS(n.config.SysRoot)) }
	}
	listener, err := listen(n.config.RunDir)
	if err != nil {
		return err
	}
	c, err := admission.New(config)
	if err != nil {
		return errors.Join(err, listener.Close(), removeSocket(n.config.RunDir))
	}
	n.config.Log.Info("serve coordination", "socket", SocketPath(n.config.RunDir))
	return n.serve(ctx, c, listener, saving)
}

// How long a server that stops waits for work to end. A disk that hangs is left behind.
const (
	endTimeout = time.Second // of publication and request sources
	// writeTimeout is for the last write, which the next server reads. A node with as many devices as
	// resources.MaxDevices takes seconds if all cores are busy. The kubelet kills a pod 30 s after it asks the
	// pod to end (terminationGracePeriodSeconds), and stuck is as long.
	writeTimeout = 10 * time.Second
)

// awaitEnd waits for work to end, for limit at the most. It calls then after the end of the work, also if that
// is later.
func awaitEnd(work *sync.WaitGroup, limit time.Duration, then func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work.Wait()
		then()
	}()
	select {
	case <-ended:
	case <-time.After(limit):
	}
}

// serve answers and writes its file until ctx is done, the work beside panics, or the socket is no longer
// the one in the run folder: then nobody new finds it, and there can be a second server soon. It ends in
// order: nobody asks any more, what was asked is answered, nothing changes any more, the work beside has
// ended, the socket is removed, what the next server reads is written down. The lock is held until then, also
// by a write that takes longer than writeTimeout: two servers never write the file at the same time.
func (n *Node) serve(
	ctx context.Context, c *admission.Coordinator, listener *net.UnixListener, saving *sync.WaitGroup,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	writing, save := context.WithCancel(context.WithoutCancel(ctx))
	defer save()
	var others sync.WaitGroup
	beside := func(work func() error) {
		others.Go(func() {
			if err := survive.Do(n.config.Log, work); err != nil {
				cancel(err)
			}
		})
	}
	beside(func() error { return c.StayTidy(ctx) })
	beside(func() error { return awaitReplaced(ctx, n.config.RunDir, n.turn) })
	beside(func() error {
		if err := n.sources.Run(ctx); err != nil {
			n.config.Log.Error("do without the API server", "error", err)
		}
		return nil
	})
	if n.config.Publisher != nil {
		others.Go(func() { n.publish(ctx, published{c, n.sources}) })
	}
	saving.Go(func() {
		if err := survive.Do(n.config.Log, func() error { return c.Save(writing) }); err != nil {
			cancel(err)
		}
	})
	own := &server{
		coordinator: c, notes: n.notes, violations: n.violations, alignment: n.alignment, log: n.config.Log,
	}
	n.serving.Store(own)
	err := own.serve(ctx, listener, func() { n.serving.Store(nil) })
	c.Close()
	cancel(nil)
	awaitEnd(&others, endTimeout, func() {})
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errReplaced):
		return cause // what is at the path now is another's
	case survive.Panicked(cause):
		err = cause
	}
	return errors.Join(err, removeSocket(n.config.RunDir))
}

// errLocked means that the other plugin serves.
var errLocked = errors.New("lock is held")

// tryLock takes <run-dir>/lock without waiting. The kernel gives it back when the process ends, however it
// ends. The file itself stays: removing it would let two processes lock two files of one name.
func tryLock(runDir string) (release func(), err error) {
	name := filepath.Join(runDir, "lock")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { file.Close() }, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}
