// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Timing of questions without a caller, while a source works.
const (
	lookPause   = time.Minute
	lookTimeout = 5 * time.Second
)

// Config configures the permitted sources.
type Config struct {
	Choice     Choice
	KubeletDir string           // the kubelet's directory (/var/lib/kubelet), for pods-api
	Kubelet    kubelet.Endpoint // the kubelet's HTTPS server, for kubelet
	Policy     Policy           // for annotations
	// Rejected is called after each answer of a source, with the pods that the kubelet's Topology Manager has
	// rejected. Must return immediately; may be nil.
	Rejected func([]Rejected)
	// Enforced is called with the Enforcement after each look of Run. Must return immediately; may be nil.
	Enforced func(Enforcement)
	// Readers read pods in place of a source's own connection.
	Readers map[Source]Reader
	Log     *slog.Logger
}

// Reader returns the pods of this node.
type Reader func(context.Context) ([]corev1.Pod, error)

// Sources are the sources of pods' requests, best first.
type Sources struct {
	sources     []*source
	closers     []func() error
	enforcement enforcement
	enforced    func(Enforcement) // may be nil
}

// Answer is the answer of the best available source: all living pods of this node with containers that
// request devices, and these containers. The kubelet's HTTPS server answers before a kubelet that has just
// started has all of its pods.
type Answer struct {
	Source Source
	Pods   []Pod
}

// errNoSource is the error of pods that no source tells.
var errNoSource = errors.New("read the node's pods: no source of requests answers")

// Open returns the sources of a configuration and starts nothing. The error contains advice on the
// configuration.
func Open(config Config) (*Sources, error) {
	s := &Sources{enforced: config.Enforced}
	for _, name := range config.Choice {
		if err := s.openSource(name, config); err != nil {
			return nil, errors.Join(fmt.Errorf("read pod requests from %s: %w", name, err), s.Close())
		}
	}
	return s, nil
}

func (s *Sources) openSource(name Source, config Config) error {
	if read := config.Readers[name]; read != nil {
		s.addSource(name, config.Log, reduceRead(read, config), func() error { return nil })
		return nil
	}
	switch name {
	case PodsAPI:
		api, err := kubelet.NewPodsAPI(config.KubeletDir)
		if err != nil {
			return err
		}
		s.addSource(name, config.Log, listFrom(api.Pods, config), api.Close)
	case Kubelet:
		if config.Kubelet.Address == "" {
			return errors.New("the node's address is not known; set --kubelet-address, or NODE_IP from status.hostIP")
		}
		https := kubelet.NewHTTPS(config.Kubelet)
		s.addSource(name, config.Log, listFrom(https.Pods, config), https.Close)
	}
	return nil
}

func (s *Sources) addSource(
	name Source, log *slog.Logger, pods func(context.Context) ([]Pod, error), closer func() error,
) {
	open, end := context.WithCancel(context.Background())
	s.sources = append(s.sources, &source{
		name: name, log: log, pods: pods, open: open, turn: make(system.Turn, 1),
	})
	s.closers = append(s.closers, func() error { end(); return closer() })
}

// listFrom returns a source's function for the kubelet's list of pods.
func listFrom(list lister, config Config) func(context.Context) ([]Pod, error) {
	r := &reducer{config: config}
	return func(ctx context.Context) ([]Pod, error) { return r.readList(ctx, list) }
}

// Run maintains the Enforcement between questions until ctx is done. Run asks immediately, so that the first
// question does not wait for a connection, and the log shows failing sources at the start. Run may be called
// again.
func (s *Sources) Run(ctx context.Context) {
	for ctx.Err() == nil {
		unanswered := s.askBest(ctx)
		now, changed := s.Enforcement()
		if s.enforced != nil && ctx.Err() == nil {
			s.enforced(now)
		}
		select {
		case <-ctx.Done():
		case <-changed: // by a question
		case <-time.After(s.untilLook(unanswered)):
		}
	}
}

// askBest asks the best available source.
func (s *Sources) askBest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, err := s.Pods(ctx)
	return err
}

// untilLook returns the time until the next look: after a failed look, until the first retry.
func (s *Sources) untilLook(unanswered error) time.Duration {
	if unanswered == nil {
		return lookPause
	}
	next := lookPause
	for _, source := range s.sources {
		next = min(next, source.untilRetry())
	}
	return max(next, firstPause)
}

// Enforcement returns the state by the last answers of the sources, and a channel that is closed after the
// next change. While Run runs, the last answers are at most a minute old.
func (s *Sources) Enforcement() (Enforcement, <-chan struct{}) {
	return s.enforcement.updateEnforcement(s.sources)
}

// Close closes the connections.
func (s *Sources) Close() error {
	var failed []error
	for _, closer := range s.closers {
		failed = append(failed, closer())
	}
	return errors.Join(failed...)
}

// Pods asks the best available source. After an error, of all sources, the pods are unknown. The sources have
// equal shares of the remaining time of ctx, so that a hanging source leaves time for the next source. A
// source whose failure took its time is skipped for a pause. A source that failed at once, because the
// kubelet is not there, costs a question nothing, and answers the first question after the kubelet's return.
func (s *Sources) Pods(ctx context.Context) (Answer, error) {
	failed := []error{errNoSource}
	for i, source := range s.sources {
		if !source.isReady() {
			continue
		}
		pods, err := source.askInShare(ctx, len(s.sources)-i)
		if errors.Is(ctx.Err(), context.Canceled) {
			return Answer{}, ctx.Err() // the caller has gone, which is no failure of the source
		}
		source.noteResult(err)
		if err == nil {
			s.Enforcement()
			return Answer{Source: source.name, Pods: pods}, nil
		}
		failed = append(failed, err)
	}
	s.Enforcement()
	return Answer{}, errors.Join(failed...)
}

// Source names the origin of a decision's knowledge about the request.
type Source string

// The sources, best first. Inference uses only order and time.
const (
	PodsAPI      Source = "pods-api"
	Kubelet      Source = "kubelet"
	PodResources Source = "podresources"
	Inference    Source = "inference"
)

// Choice is the value of the flag --intent: the permitted sources, as comma-separated names.
type Choice []Source

// Default contains the sources without cost and permissions.
var Default = Choice{PodsAPI, PodResources}

// MarshalText returns comma-separated names.
func (c Choice) MarshalText() ([]byte, error) {
	names := make([]string, len(c))
	for i, s := range c {
		names[i] = string(s)
	}
	return []byte(strings.Join(names, ",")), nil
}

// UnmarshalText accepts comma-separated names in any order; "none" or an empty text leaves inference.
func (c *Choice) UnmarshalText(text []byte) error {
	choosable := Choice{PodsAPI, Kubelet, PodResources}
	named := map[Source]bool{}
	for name := range strings.SplitSeq(string(text), ",") {
		source := Source(strings.TrimSpace(name))
		if source == "" || string(text) == "none" {
			continue
		}
		if !slices.Contains(choosable, source) {
			all, _ := choosable.MarshalText()
			return fmt.Errorf("unknown source %q, want some of %s", source, all)
		}
		named[source] = true
	}
	*c = slices.DeleteFunc(choosable, func(s Source) bool { return !named[s] })
	return nil
}

// Pauses after a failure of a source: first firstPause, then twice as long after each further failure. A
// source that was slow once answers for the next pod. Questions wait for the end of a pause only if the
// failure was costly.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Minute
)

// source is a source with the results of the last questions.
type source struct {
	name Source
	log  *slog.Logger
	pods func(context.Context) ([]Pod, error)

	open     context.Context // until the source is closed
	turn     system.Turn     // one list at a time
	mu       sync.Mutex
	answered bool          // with or without an error
	failure  error         // of the last question; nil for none
	pause    time.Duration // 0 without a failure
	retry    time.Time
	costly   bool // the failure takes the time of questions before retry
}

// enoughTime is the time in which a working source answers. A source without an answer in less time has not
// failed: the caller had no time left.
const enoughTime = 10 * time.Millisecond

var (
	// errHurried is the failure of a question with less than enoughTime.
	errHurried = errors.New("no answer in the short time that the caller had left")
	// errLate is the failure of a source without an answer in its share of the time.
	errLate = errors.New("no answer in time")
)

// askInShare calls the source with one of several shares of the remaining time. A list that exceeds the share
// is read to its end, for at most lookTimeout or until the source is closed, while later questions wait: the
// pods in it are not decoded again, and its end ends the pause of the source.
func (s *source) askInShare(ctx context.Context, shares int) ([]Pod, error) {
	hurried := false
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		share := time.Until(deadline) / time.Duration(shares)
		hurried = share < enoughTime
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	pods, err := system.AwaitResult(ctx, system.CallInTurn(ctx, s.turn, func() (pods []Pod, err error) {
		reading, cancel := context.WithTimeout(s.open, lookTimeout)
		defer cancel()
		pods, err = system.SurviveResult(s.log, func() ([]Pod, error) { return s.pods(reading) })
		if err == nil && ctx.Err() != nil {
			s.noteResult(nil)
		}
		return pods, err
	}))
	switch {
	case err == nil || ctx.Err() == nil:
		return pods, err
	case hurried:
		return nil, errHurried
	default:
		return nil, fmt.Errorf("%w: %w", errLate, err)
	}
}

func (s *source) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.costly || !time.Now().Before(s.retry)
}

// untilRetry returns the time until the next call of a failed source.
func (s *source) untilRetry() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.retry)
}

// noteResult stores the result of a question with enough time, and logs the first failure and the recovery.
func (s *source) noteResult(err error) {
	if errors.Is(err, errHurried) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered, s.failure = true, err
	s.costly = errors.Is(err, errLate) || errors.Is(err, kubelet.ErrTooLarge) || system.Panicked(err)
	switch {
	case err == nil && s.pause > 0:
		s.log.Info("source of requests available again", "source", s.name)
		fallthrough
	case err == nil:
		s.pause, s.retry = 0, time.Time{}
		return
	case s.pause == 0 && errors.Is(err, kubelet.ErrNoPodsAPI):
		s.log.Info("Pods API not available; retrying",
			"source", s.name, "reason", err)
	case s.pause == 0:
		s.log.Warn("source of requests not available; retrying",
			"source", s.name, "error", err)
	}
	s.pause = min(max(2*s.pause, firstPause), maxPause)
	s.retry = time.Now().Add(s.pause)
}

// lastResult returns the result of the last question.
func (s *source) lastResult() (answered bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered, s.failure
}
