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

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Source names the origin of a decision's knowledge about the request.
type Source string

// The sources, best first. Inference uses only order and time.
const (
	PodsAPI      Source = "pods-api"
	Kubelet      Source = "kubelet"
	PodResources Source = "podresources"
	Inference    Source = "inference"

	former Source = "api-server" // of versions before 0.1: accepted with a warning, and no source
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
		if source != former && !slices.Contains(choosable, source) {
			all, _ := choosable.MarshalText()
			return fmt.Errorf("unknown source %q, want some of %s", source, all)
		}
		named[source] = true
	}
	*c = slices.DeleteFunc(append(choosable, former), func(s Source) bool { return !named[s] })
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

// ask calls the source with one of several shares of the remaining time. A list that exceeds the share is
// read to its end, for at most lookTimeout or until the source is closed, while later questions wait: the
// pods in it are not decoded again, and its end ends the pause of the source.
func (s *source) ask(ctx context.Context, shares int) ([]Pod, error) {
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
		err = system.Survive(s.log, func() (err error) {
			pods, err = s.pods(reading)
			return err
		})
		if err == nil && ctx.Err() != nil {
			s.note(nil)
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

func (s *source) ready() bool {
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

// note stores the result of a question with enough time, and logs the first failure and the recovery.
func (s *source) note(err error) {
	if errors.Is(err, errHurried) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered, s.failure = true, err
	s.costly = errors.Is(err, errLate) || errors.Is(err, kubelet.ErrTooLarge) || system.Panicked(err)
	switch {
	case err == nil && s.pause > 0:
		s.log.Info("source of intent available again", "source", s.name)
		fallthrough
	case err == nil:
		s.pause, s.retry = 0, time.Time{}
		return
	case s.pause == 0 && errors.Is(err, kubelet.ErrNoPodsAPI):
		s.log.Info("Pods API not available; retrying",
			"source", s.name, "reason", err)
	case s.pause == 0:
		s.log.Warn("source of intent not available; retrying",
			"source", s.name, "error", err)
	}
	s.pause = min(max(2*s.pause, firstPause), maxPause)
	s.retry = time.Now().Add(s.pause)
}

// last returns the result of the last question.
func (s *source) last() (answered bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered, s.failure
}
