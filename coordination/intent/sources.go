// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// A source that fails is left alone for firstPause, and for twice as long each time that it fails again: one
// that was slow once is asked for the next pod.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Minute
)

// lookPause is the time between two looks at the sources, for which nobody waits, while one of them works.
const lookPause = time.Minute

// lookTimeout is how long such a look may take.
const lookTimeout = 5 * time.Second

// maxAsking bounds the questions to one source that have no answer yet: both plugins can ask at once, one
// question can be given up.
const maxAsking = 4

// Config says which sources may be used and how to reach them.
type Config struct {
	Choice     Choice
	KubeletDir string           // the kubelet's folder (/var/lib/kubelet): pods-api
	Kubelet    kubelet.Endpoint // its HTTPS server: kubelet
	Node       string           // the node's name: api-server
	Policy     Policy           // what pods may say
	APIServer  *rest.Config     // nil for that of the cluster which this process is in a pod of: api-server
	// Rejected is told, with each answer of a source, which pods the kubelet's Topology Manager has refused. It
	// returns at once; nil for nobody.
	Rejected func([]Rejected)
	Log      *slog.Logger
}

// Sources are those that tell what pods ask for, best first.
type Sources struct {
	sources     []*source
	watcher     *watcher // nil unless the API server is one of them
	closers     []func() error
	enforcement enforcement
}

// source is one of them, and how it fares.
type source struct {
	name Source
	log  *slog.Logger
	pods func(context.Context) ([]Pod, error)

	asking   atomic.Int32 // questions without answer
	mu       sync.Mutex
	answered bool          // whatever it said
	failure  error         // of the last question; nil while it works
	pause    time.Duration // 0 while it works
	retry    time.Time
}

// Answer is what the best source that answered says: every pod of this node that has not ended.
type Answer struct {
	Source Source
	Pods   []Pod
}

// Open makes the sources that the config chooses. It starts nothing; an error says what the config lacks.
func Open(config Config) (*Sources, error) {
	s := &Sources{}
	for _, name := range config.Choice {
		if err := s.open(name, config); err != nil {
			return nil, errors.Join(fmt.Errorf("ask %s what pods want: %w", name, err), s.Close())
		}
	}
	return s, nil
}

func (s *Sources) open(name Source, config Config) error {
	switch name {
	case PodsAPI:
		api, err := kubelet.NewPodsAPI(config.KubeletDir)
		if err != nil {
			return err
		}
		s.add(name, config.Log, reduced(api.Pods, config), api.Close)
	case Kubelet:
		if config.Kubelet.Address == "" {
			return errors.New("the node's address is not known; set --kubelet-address, or NODE_IP from status.hostIP")
		}
		https := kubelet.NewHTTPS(config.Kubelet)
		s.add(name, config.Log, reduced(https.Pods, config), https.Close)
	case APIServer:
		w, err := openWatcher(config)
		if err != nil {
			return err
		}
		s.watcher = w
		s.add(name, config.Log, reduced(w.pods, config), func() error { return nil })
	}
	return nil
}

func openWatcher(config Config) (*watcher, error) {
	if config.Node == "" {
		return nil, errors.New("the node's name is not known; set --node-name, or NODE_NAME from spec.nodeName")
	}
	server, err := ServerConfig(config.APIServer)
	if err != nil {
		return nil, err
	}
	return newWatcher(server, config.Node)
}

func (s *Sources) add(
	name Source, log *slog.Logger, pods func(context.Context) ([]Pod, error), closer func() error,
) {
	s.sources = append(s.sources, &source{name: name, log: log, pods: pods})
	s.closers = append(s.closers, closer)
}

func reduced(
	list func(context.Context) ([]corev1.Pod, error), config Config,
) func(context.Context) ([]Pod, error) {
	return func(ctx context.Context) ([]Pod, error) {
		pods, err := list(ctx)
		if err == nil && config.Rejected != nil {
			config.Rejected(rejectedPods(pods, time.Now()))
		}
		return newPods(pods, config.Policy), err
	}
}

// Run keeps up what has to be between questions, until ctx is done: a watch, where there is one, and whether
// annotations are enforced. It asks at once, so that the first question does not wait for a connection to be
// made, and people read at the start which source does not work. It may be called again.
func (s *Sources) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	var failed error
	if s.watcher != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watching.Go(func() { failed = s.watcher.run(ctx) })
	}
	for ctx.Err() == nil && len(s.sources) > 0 {
		s.look(ctx)
		_, changed := s.Enforcement()
		select {
		case <-ctx.Done():
		case <-changed: // by a question, perhaps to none
		case <-time.After(s.untilLook()):
		}
	}
	watching.Wait()
	return failed
}

// look asks the best source that does not fail.
func (s *Sources) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s.Pods(ctx)
}

// untilLook is the time until the next look: while no source works, until the first one is asked again.
func (s *Sources) untilLook() time.Duration {
	if now, _ := s.Enforcement(); now.Enforced() {
		return lookPause
	}
	next := lookPause
	for _, source := range s.sources {
		next = min(next, source.untilRetry())
	}
	return max(next, firstPause)
}

// Close ends the connections.
func (s *Sources) Close() error {
	var failed []error
	for _, closer := range s.closers {
		failed = append(failed, closer())
	}
	return errors.Join(failed...)
}

// Pods asks the best source that does not fail, and returns false if all do or none is chosen. Each has an
// equal share of the time that ctx leaves, so that one that hangs leaves time to the next. A source that
// fails is not asked again for a while, so that it costs no time either.
func (s *Sources) Pods(ctx context.Context) (Answer, bool) {
	for i, source := range s.sources {
		if !source.ready() {
			continue
		}
		pods, err := source.ask(ctx, len(s.sources)-i)
		if errors.Is(ctx.Err(), context.Canceled) {
			return Answer{}, false // nobody waits any more: that tells nothing of the source
		}
		source.note(err)
		if err == nil {
			s.judge()
			return Answer{Source: source.name, Pods: pods}, true
		}
	}
	s.judge()
	return Answer{}, false
}

// ask asks with one of several shares of the time that is left. A source that does not heed its deadline,
// because a disk hangs, is left behind, and not asked again until it has come back.
func (s *source) ask(ctx context.Context, shares int) ([]Pod, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(shares))
		defer cancel()
	}
	if s.asking.Add(1) > maxAsking {
		s.asking.Add(-1)
		return nil, errors.New("earlier questions have no answer yet")
	}
	type result struct {
		pods []Pod
		err  error
	}
	results := make(chan result, 1)
	go func() {
		defer s.asking.Add(-1)
		var r result
		r.err = survive.Do(s.log, func() (err error) {
			r.pods, err = s.pods(ctx)
			return err
		})
		results <- r
	}()
	select {
	case r := <-results:
		return r.pods, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *source) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.retry)
}

// untilRetry is the time until a source that failed is asked again.
func (s *source) untilRetry() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.retry)
}

// note remembers whether the source worked. It is logged when that changes.
func (s *source) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered, s.failure = true, err
	switch {
	case err == nil && s.pause > 0:
		s.log.Info("source of intent works again", "source", s.name)
		fallthrough
	case err == nil:
		s.pause, s.retry = 0, time.Time{}
		return
	case s.pause == 0 && errors.Is(err, kubelet.ErrNoPodsAPI):
		s.log.Info("this kubelet has no Pods API: do without it, and look for it now and then",
			"source", s.name, "reason", err)
	case s.pause == 0:
		s.log.Warn("source of intent does not work: do without it, and try it again now and then",
			"source", s.name, "error", err)
	}
	s.pause = min(max(2*s.pause, firstPause), maxPause)
	s.retry = time.Now().Add(s.pause)
}
