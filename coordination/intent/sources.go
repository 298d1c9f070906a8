// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// Enforced is called while Run runs, with the first Enforcement and each other one. Must return immediately;
	// may be nil.
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
		if err := s.open(name, config); err != nil {
			return nil, errors.Join(fmt.Errorf("read pod requests from %s: %w", name, err), s.Close())
		}
	}
	return s, nil
}

func (s *Sources) open(name Source, config Config) error {
	if read := config.Readers[name]; read != nil {
		s.add(name, config.Log, reduced(read, config), func() error { return nil })
		return nil
	}
	switch name {
	case PodsAPI:
		api, err := kubelet.NewPodsAPI(config.KubeletDir)
		if err != nil {
			return err
		}
		s.add(name, config.Log, listed(api.Pods, config), api.Close)
	case Kubelet:
		if config.Kubelet.Address == "" {
			return errors.New("the node's address is not known; set --kubelet-address, or NODE_IP from status.hostIP")
		}
		https := kubelet.NewHTTPS(config.Kubelet)
		s.add(name, config.Log, listed(https.Pods, config), https.Close)
	case former:
		config.Log.Warn("--intent: " + string(former) + " is no source of pod requests any more; name " +
			string(Kubelet) + " instead, with the right to get nodes/pods")
	}
	return nil
}

func (s *Sources) add(
	name Source, log *slog.Logger, pods func(context.Context) ([]Pod, error), closer func() error,
) {
	open, end := context.WithCancel(context.Background())
	s.sources = append(s.sources, &source{
		name: name, log: log, pods: pods, open: open, turn: make(system.Turn, 1),
	})
	s.closers = append(s.closers, func() error { end(); return closer() })
}

// listed returns a source's function for the kubelet's list of pods.
func listed(list lister, config Config) func(context.Context) ([]Pod, error) {
	r := &reducer{config: config}
	return func(ctx context.Context) ([]Pod, error) { return r.read(ctx, list) }
}

// Run maintains the Enforcement between questions until ctx is done. Run asks immediately, so that the first
// question does not wait for a connection, and the log shows failing sources at the start. Run may be called
// again.
func (s *Sources) Run(ctx context.Context) {
	var told Enforcement
	for ctx.Err() == nil {
		unanswered := s.look(ctx)
		now, changed := s.Enforcement()
		if s.enforced != nil && now != told && ctx.Err() == nil {
			s.enforced(now)
		}
		told = now
		select {
		case <-ctx.Done():
		case <-changed: // by a question
		case <-time.After(s.untilLook(unanswered)):
		}
	}
}

// look asks the best available source.
func (s *Sources) look(ctx context.Context) error {
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
	return s.enforcement.update(s.sources)
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
		if !source.ready() {
			continue
		}
		pods, err := source.ask(ctx, len(s.sources)-i)
		if errors.Is(ctx.Err(), context.Canceled) {
			return Answer{}, ctx.Err() // the caller has gone, which is no failure of the source
		}
		source.note(err)
		if err == nil {
			s.Enforcement()
			return Answer{Source: source.name, Pods: pods}, nil
		}
		failed = append(failed, err)
	}
	s.Enforcement()
	return Answer{}, errors.Join(failed...)
}
