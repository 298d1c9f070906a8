package deviceplugin

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// preferLimit is how long a Preferrer may think. The kubelet has no deadline of its own and starts no other pod
// meanwhile (pkg/kubelet/cm/devicemanager/endpoint.go).
const preferLimit = 100 * time.Millisecond

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

// prefer asks the Preferrer and makes an answer that the kubelet can use of whatever comes back, or does not.
func (s *Server) prefer(ctx context.Context, q question) []string {
	began := time.Now()
	defer func() { s.observer.Preferred(s.resource.Name(), time.Since(began)) }()
	if s.preferrer == nil {
		return q.repair(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, preferLimit)
	defer cancel()
	chosen, problem := s.ask(ctx, q)
	answer := q.repair(chosen)
	if problem == "" && !slices.Equal(chosen, answer) {
		problem = "wrong answer"
	}
	if problem != "" {
		s.log.Warn("preferred allocation repaired", "problem", problem, "answer", chosen, "chosen", answer)
	}
	return answer
}

// ask puts the question to the Preferrer, one question at a time: a Preferrer that hangs in spite of ctx keeps one
// goroutine, however often it is asked.
func (s *Server) ask(ctx context.Context, q question) (chosen []string, problem string) {
	select {
	case s.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, "an earlier question is still open"
	}
	type answer struct {
		chosen  []string
		problem string
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				s.log.Error("prefer panicked", "panic", cause, "stack", stack())
				answers <- answer{problem: "panic"}
			}
			<-s.asking
		}()
		answers <- answer{chosen: s.preferrer.Prefer(ctx, slices.Clone(q.available), slices.Clone(q.mustInclude), q.size)}
	}()
	select {
	case a := <-answers:
		return a.chosen, a.problem
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // both were there: the machine is busy
		return a.chosen, a.problem
	default:
		return nil, "no answer in time"
	}
}

// repair returns an answer as the kubelet wants it: exactly size devices, or all there are; the must-include ones among
// them, which count as available; none twice. What is missing is filled up in the order of the IDs, since the kubelet
// would fill it up at random.
func (q question) repair(chosen []string) []string {
	open := map[string]bool{}
	for _, id := range slices.Concat(q.available, q.mustInclude) {
		open[id] = true
	}
	kept := slices.DeleteFunc(unique(chosen), func(id string) bool { return !open[id] })
	missing := slices.DeleteFunc(slices.Clone(q.mustInclude), func(id string) bool { return slices.Contains(kept, id) })
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
