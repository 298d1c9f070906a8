// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/bounded"
)

// Reasons for an answer that does not come from the Preferrer.
var (
	errWrong = errors.New("wrong answer")
	errPanic = errors.New("panic")
)

// question is the kubelet's call for one container, without duplicate and empty IDs.
type question struct {
	available   []string
	mustInclude []string
	size        int
}

func newQuestion(request *v1beta1.ContainerPreferredAllocationRequest) question {
	return question{
		available:   unique(request.GetAvailableDeviceIDs()),
		mustInclude: unique(request.GetMustIncludeDeviceIDs()),
		size:        int(max(request.GetAllocationSize(), 0)),
	}
}

// prefer asks the Preferrer and repairs its answer. If it gets no answer in time, it uses the Preferrer's
// Alone choice.
func (s *Server) prefer(ctx context.Context, q question) []string {
	began := time.Now()
	defer func() { s.observer.Preferred(s.resource.Name(), time.Since(began)) }()
	if s.preferrer == nil {
		return q.repair(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, bounded.Question)
	defer cancel()
	given, problem := s.await(ctx, q)
	chosen := q.repair(given)
	if problem == nil && !slices.Equal(given, chosen) {
		problem = errWrong
	}
	if problem != nil {
		s.log.Warn("preferred allocation repaired", "problem", problem, "answer", given, "chosen", chosen)
	}
	return chosen
}

// await waits for an answer until ctx is done. Without an answer it returns the Preferrer's Alone choice, and
// an error with the reason.
func (s *Server) await(ctx context.Context, q question) ([]string, error) {
	answers := s.ask(ctx, q)
	select {
	case a := <-answers:
		if a.Err != nil {
			return s.alone(q), a.Err
		}
		return a.Value, nil
	case <-time.After(bounded.Alone):
	}
	alone := s.alone(q)
	chosen, err := bounded.Wait(ctx, answers)
	if err != nil {
		return alone, err
	}
	return chosen, nil
}

// ask forwards the question to the Preferrer, one question at a time: a Preferrer that hangs in spite of ctx
// occupies one goroutine, however many questions arrive.
func (s *Server) ask(ctx context.Context, q question) <-chan bounded.Result[[]string] {
	return bounded.Go(ctx, s.asking, func() (chosen []string, err error) {
		err = s.surviving("prefer", func() {
			chosen = s.preferrer.Prefer(ctx, slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)
		})
		return chosen, err
	})
}

// alone returns the Preferrer's Alone choice, or nil if it panics.
func (s *Server) alone(q question) (chosen []string) {
	_ = s.surviving("choose alone", func() {
		chosen = s.preferrer.Alone(slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)
	})
	return chosen
}

// surviving limits the effect of a panic to the current call.
func (s *Server) surviving(what string, do func()) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error(what+" panicked", "panic", cause, "stack", stack())
			err = errPanic
		}
	}()
	do()
	return nil
}

// repair returns an answer with exactly size devices, or all available ones; it includes the must-include
// devices, which count as available, and contains no duplicates. It adds missing devices in the order of
// their IDs, because the kubelet would add them at random.
func (q question) repair(chosen []string) []string {
	open := map[string]bool{}
	for _, id := range slices.Concat(q.available, q.mustInclude) {
		open[id] = true
	}
	kept := slices.DeleteFunc(unique(chosen), func(id string) bool { return !open[id] })
	missing := slices.DeleteFunc(slices.Clone(q.mustInclude), func(id string) bool {
		return slices.Contains(kept, id)
	})
	if len(missing) == 0 && len(kept) == q.size {
		return kept
	}
	fill := slices.Sorted(slices.Values(q.available))
	answer := unique(slices.Concat(q.mustInclude, kept, fill))
	return answer[:min(q.size, len(answer))]
}

// unique removes empty and duplicate IDs and keeps the order of the others.
func unique(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	kept := make([]string, 0, len(ids))
	for _, id := range ids {
		if id != "" && !seen[id] {
			seen[id] = true
			kept = append(kept, id)
		}
	}
	return kept
}

func stack() string { return string(debug.Stack()) }
