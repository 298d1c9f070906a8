// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/system"
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

// preference asks the Preferrer of a resource.
type preference struct {
	resource  string
	preferrer Preferrer // nil if the resource has no preference
	turn      system.Turn
	observer  RegistrationObserver
	log       *slog.Logger
}

// prefer asks the Preferrer and repairs its answer. If it gets no answer in time, it uses the Preferrer's
// Alone choice.
func (p *preference) prefer(ctx context.Context, q question) []string {
	began := time.Now()
	defer func() { p.observer.Preferred(p.resource, time.Since(began)) }()
	if p.preferrer == nil {
		return q.repair(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, system.QuestionLimit)
	defer cancel()
	given, problem := p.await(ctx, q)
	chosen := q.repair(given)
	if problem == nil && !slices.Equal(given, chosen) {
		problem = errWrong
	}
	if problem != nil {
		p.log.Warn("preferred allocation repaired", "problem", problem, "answer", given, "chosen", chosen)
	}
	return chosen
}

// await waits for an answer until ctx is done. Without an answer it returns the Preferrer's Alone choice, and
// an error with the reason.
func (p *preference) await(ctx context.Context, q question) ([]string, error) {
	answers := p.ask(ctx, q)
	select {
	case a := <-answers:
		if a.Err != nil {
			return p.alone(q), a.Err
		}
		return a.Value, nil
	case <-time.After(system.AloneLimit):
	}
	alone := p.alone(q)
	chosen, err := system.AwaitResult(ctx, answers)
	if err != nil {
		return alone, err
	}
	return chosen, nil
}

// ask forwards the question to the Preferrer, one question at a time: a Preferrer that hangs in spite of ctx
// occupies one goroutine, however many questions arrive.
func (p *preference) ask(ctx context.Context, q question) <-chan system.Result[[]string] {
	return system.CallInTurn(ctx, p.turn, func() (chosen []string, err error) {
		err = p.surviving("prefer", func() {
			chosen = p.preferrer.Prefer(ctx, slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)
		})
		return chosen, err
	})
}

// alone returns the Preferrer's Alone choice, or nil if it panics.
func (p *preference) alone(q question) (chosen []string) {
	_ = p.surviving("choose alone", func() {
		chosen = p.preferrer.Alone(slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)
	})
	return chosen
}

// surviving limits the effect of a panic to the current call.
func (p *preference) surviving(what string, do func()) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			p.log.Error(what+" panicked", "panic", cause, "stack", stack())
			err = errPanic
		}
	}()
	do()
	return nil
}

// alive reports whether the Preferrer is responsive. It waits at most until ctx is done.
func (p *preference) alive(ctx context.Context) error {
	if p.turn.Await(ctx) != nil {
		return fmt.Errorf("a preferred allocation of %s hangs: %w", p.resource, context.Cause(ctx))
	}
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
