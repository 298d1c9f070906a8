// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/system"
)

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
func (t *term) begin(ctx, writing context.Context, checked func()) {
	t.start(&t.others, func() error { return t.coordinator.StayTidy(ctx) })
	t.start(&t.others, func() error { return t.config.Socket.AwaitReplaced(ctx, checked) })
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
	ctx context.Context, listener net.Listener, serving func(*nodeServer), checked func(),
) error {
	ctx, t.end = context.WithCancelCause(ctx)
	defer t.end(nil)
	writing, save := context.WithCancel(context.WithoutCancel(ctx))
	defer save()
	t.begin(ctx, writing, checked)
	own := &nodeServer{
		coordinator: t.coordinator, remarks: remarks{t.config, t.sources},
		clients: t.config.Socket.Credentials(), log: t.config.Log,
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
	// resources.MaxDevices takes seconds if all cores are busy. The kubelet kills a pod 30 s after it asks the
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
