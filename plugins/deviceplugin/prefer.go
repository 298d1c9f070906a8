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

// Why an answer is not that of the Preferrer.
var (
	errWrong = errors.New("wrong answer")
	errPanic = errors.New("panic")
)

// question is what the kubelet asks for one container, without doubles and empty IDs.
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

// prefer asks the Preferrer and makes an answer that the kubelet can use of whatever comes back. Where
// nothing does, however busy the machine is, it is what the Preferrer chooses alone.
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

// await waits for an answer until ctx is done. Where there is none, the answer is what the Preferrer chooses
// alone, and the error says why.
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

// ask puts the question to the Preferrer, one question at a time: a Preferrer that hangs in spite of ctx
// keeps one goroutine, however often it is asked.
func (s *Server) ask(ctx context.Context, q question) <-chan bounded.Result[[]string] {
	return bounded.Go(ctx, s.asking, func() (chosen []string, err error) {
		err = s.surviving("prefer", func() {
			chosen = s.preferrer.Prefer(ctx, slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)
		})
		return chosen, err
	})
}

// alone is what the Preferrer chooses without asking anybody, nil where it fails.
func (s *Server) alone(q question) (chosen []string) {
	_ = s.surviving("choose alone", func() {
		chosen = s.preferrer.Alone(slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)
	})
	return chosen
}

// surviving has a panic cost no more than what was being done.
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

// repair returns an answer as the kubelet wants it: exactly size devices, or all there are; the must-include
// ones among them, which count as available; none twice. What is missing is filled up in the order of the
// IDs, since the kubelet would fill it up at random.
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

// unique drops empty and repeated IDs and keeps the order of the others.
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
