// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// election makes a plugin the server while the plugin holds the lock.
type election struct {
	config  *Config
	machine *machine
	sources *intent.Sources
	lost    <-chan struct{} // signals that the connection to the server broke

	serving atomic.Pointer[nodeServer] // nil while another plugin serves
	beat    atomic.Pointer[time.Time]  // time of the last round
}

// run serves after each successful election until ctx is done. An unusable run directory is logged once; the
// plugin then works alone and tries again.
func (e *election) run(ctx context.Context) {
	var burst time.Time
	var unusable system.Complaint
	for ctx.Err() == nil {
		e.recordRound()
		err := system.Survive(e.config.Log, func() error { return e.serveIfElected(ctx) })
		failure := err
		if errors.Is(err, errLocked) {
			failure = nil
		}
		if unusable.IsNew(failure) {
			e.config.Log.Error("coordination socket not available; retrying",
				"run_dir", e.config.RunDir, "error", err)
		}
		pause, lost := electionPause, e.lost
		switch {
		case system.Panicked(err): // likely to recur: the other plugin takes its turn
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

// serveIfElected serves while this plugin holds the lock, and returns errLocked if another process holds the
// lock. The lock is released after the last write, even beyond writeTimeout: two servers never write the
// coordinator's file at the same time.
func (e *election) serveIfElected(ctx context.Context) error {
	if err := makeRunDir(e.config.RunDir); err != nil {
		return err
	}
	release, err := tryLock(e.config.RunDir)
	if err != nil {
		return err
	}
	t := &term{config: e.config, sources: e.sources}
	defer awaitEnd(&t.saving, writeTimeout, release)
	pods, disconnect, err := openPodResources(e.config)
	if err != nil {
		return err
	}
	defer disconnect()
	listener, err := e.config.Socket.Listen()
	if err != nil {
		return err
	}
	t.coordinator, err = newCoordinator(e.config, e.machine, e.sources, pods)
	if err != nil {
		return errors.Join(err, listener.Close(), e.config.Socket.Remove())
	}
	e.config.Log.Info("serving coordination", "socket", SocketPath(e.config.RunDir))
	return t.serve(ctx, listener, e.serving.Store, e.recordRound)
}

// openPodResources returns the kubelet's PodResources API, and a function that closes the connection.
func openPodResources(c *Config) (pods PodResources, disconnect func(), err error) {
	if c.PodResources != nil {
		return c.PodResources, func() {}, nil
	}
	socket, err := kubelet.NewPodResources(c.KubeletDir)
	if err != nil {
		return nil, nil, err
	}
	return socket, func() { socket.Close() }, nil
}

// stuck is the maximum time between two rounds of the election, which runs every electionPause.
const stuck = 6 * electionPause

// recordRound records a round of the election.
func (e *election) recordRound() {
	now := time.Now()
	e.beat.Store(&now)
}

// alive returns an error if the election hangs or, while this plugin serves, the coordinator, so that a
// restart would help. Waits at most until ctx is done.
func (e *election) alive(ctx context.Context) error {
	if beat := e.beat.Load(); beat != nil && time.Since(*beat) > stuck {
		return fmt.Errorf("the election of the coordination server hangs since %s", beat.Format(time.RFC3339))
	}
	if own := e.serving.Load(); own != nil {
		return own.coordinator.Alive(ctx)
	}
	return nil
}

// openSources returns the sources of pod requests.
func (e *election) openSources() (*intent.Sources, error) {
	config := e.config.Intent
	config.KubeletDir, config.Rejected, config.Log = e.config.KubeletDir, e.rejected, e.config.Log
	return intent.Open(config)
}

// rejected forwards rejected pods with requests for resources of the plugins, while this plugin serves.
func (e *election) rejected(pods []intent.Rejected) {
	own := e.serving.Load()
	if own == nil || e.config.Intent.Rejected == nil {
		return
	}
	announced, _ := own.coordinator.Announced()
	names := map[string]bool{}
	for _, r := range announced.Resources {
		names[r.Name] = true
	}
	e.config.Intent.Rejected(slices.DeleteFunc(pods, func(p intent.Rejected) bool {
		return !slices.ContainsFunc(p.Resources, func(name string) bool { return names[name] })
	}))
}

// term is the time of a server, from the election to the last write of the coordinator's file.
type term struct {
	config      *Config
	sources     *intent.Sources
	coordinator *admission.Coordinator
	others      sync.WaitGroup // work besides answers and writes
	saving      sync.WaitGroup // writes of the coordinator's file
	end         context.CancelCauseFunc
}

// begin starts the work besides the answers, until ctx is done. The coordinator's file is written until
// writing is done. A panic ends the term.
func (t *term) begin(ctx, writing context.Context, listener Listener, checked func()) {
	t.start(&t.others, func() error { return t.coordinator.StayTidy(ctx) })
	t.start(&t.others, func() error { return listener.AwaitReplaced(ctx, checked) })
	t.start(&t.others, func() error { t.sources.Run(ctx); return nil })
	if t.config.Publisher != nil {
		plugins := published{t.coordinator, t.sources, t.config.Intent.Policy}
		t.others.Go(func() { publishNode(ctx, t.config, plugins) })
	}
	t.start(&t.saving, func() error { return t.coordinator.Save(writing) })
}

// start starts work in a group. An error ends the term.
func (t *term) start(group *sync.WaitGroup, work func() error) {
	group.Go(func() {
		if err := system.Survive(t.config.Log, work); err != nil {
			t.end(err)
		}
	})
}

// serve serves until ctx is done, other work fails, or the socket is replaced: new clients would not find the
// server, and a second server can start soon. The end is in order: no calls begin, open calls end, the state
// no longer changes, other work ends, the socket is removed, and the last write begins. It calls serving with
// the server and at the end with nil, and checked after each check of the socket.
func (t *term) serve(
	ctx context.Context, listener Listener, serving func(*nodeServer), checked func(),
) error {
	ctx, t.end = context.WithCancelCause(ctx)
	defer t.end(nil)
	writing, save := context.WithCancel(context.WithoutCancel(ctx))
	defer save()
	t.begin(ctx, writing, listener, checked)
	own := &nodeServer{
		coordinator: t.coordinator, remarks: remarks{t.config, t.sources},
		clients: t.config.Socket.Credentials(), calls: make(system.Turn, maxCalls), log: t.config.Log,
	}
	serving(own)
	err := own.serve(ctx, listener, func() { serving(nil) })
	t.coordinator.Close()
	t.end(nil)
	awaitEnd(&t.others, endTimeout, func() {})
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errReplaced):
		return cause // the socket belongs to another process
	case system.Panicked(cause):
		err = cause
	}
	return errors.Join(err, t.config.Socket.Remove())
}

// Timeouts at the end of a term. Work is abandoned if a disk hangs.
const (
	endTimeout = time.Second // of publication and request sources
	// writeTimeout is for the last write, which the next server reads. A node with as many devices as
	// device.MaxDevices takes seconds if all cores are busy. The kubelet kills a pod 30 s after it asks the
	// pod to end (terminationGracePeriodSeconds), and stuck is as long.
	writeTimeout = 10 * time.Second
)

// awaitEnd waits for the end of work, for at most limit, and calls then after the end, even beyond the limit.
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

// published is the knowledge of the serving plugin.
type published struct {
	*admission.Coordinator
	*intent.Sources
	policy intent.Policy
}

// Policy returns the policy for annotations of pods.
func (p published) Policy() intent.Policy { return p.policy }

// publishPause is the pause before a failed publisher starts again.
const publishPause = time.Minute

// publishNode publishes the node until ctx is done. Errors do not affect the server.
func publishNode(ctx context.Context, c *Config, plugins Announced) {
	for {
		err := system.Survive(c.Log, func() error { return c.Publisher.Publish(ctx, plugins) })
		if ctx.Err() != nil {
			return
		}
		c.Log.Error("publication of this node failed; retrying", "retry_in", publishPause, "error", err)
		select {
		case <-time.After(publishPause):
		case <-ctx.Done():
			return
		}
	}
}
