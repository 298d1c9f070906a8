// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// newQuestion returns the kubelet's call for one container as a question to the coordinator, without
// duplicate and empty IDs.
func newQuestion(resource string, request *v1beta1.ContainerPreferredAllocationRequest) *api.PreferRequest {
	return &api.PreferRequest{
		Resource:    resource,
		Available:   unique(request.GetAvailableDeviceIDs()),
		MustInclude: unique(request.GetMustIncludeDeviceIDs()),
		Size:        uint32(max(request.GetAllocationSize(), 0)),
	}
}

// prefer asks the Preferrer and repairs the answer. Without an answer in time, the Preferrer's Alone choice
// counts.
func (s *Server) prefer(ctx context.Context, q *api.PreferRequest) []string {
	began := time.Now()
	defer func() { s.Observer.Preferred(s.resource.Name(), time.Since(began)) }()
	if s.preferrer == nil {
		return repair(q, nil)
	}
	given, err := s.ask(ctx, q)
	if err != nil {
		given = s.alone(q, err)
	}
	chosen := repair(q, given)
	if !slices.Equal(given, chosen) {
		s.Log.Warn("preferred allocation repaired", "answer", given, "chosen", chosen)
	}
	return chosen
}

// ask asks the Preferrer for at most CoordinatorLimit, one question at a time: a Preferrer that hangs in
// spite of ctx occupies one goroutine, however many questions arrive.
func (s *Server) ask(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, system.CoordinatorLimit)
	defer cancel()
	return system.AwaitResult(ctx, system.CallInTurn(ctx, s.turn, func() ([]string, error) {
		return system.SurviveResult(s.Log, func() ([]string, error) { return s.preferrer.Prefer(ctx, q) })
	}))
}

// alone returns the Preferrer's Alone choice, or nil if it panics.
func (s *Server) alone(q *api.PreferRequest, cause error) []string {
	chosen, _ := system.SurviveResult(s.Log, func() ([]string, error) {
		return s.preferrer.Alone(q, cause), nil
	})
	return chosen
}

// Alive returns an error if the Preferrer hangs until ctx is done.
func (s *Server) Alive(ctx context.Context) error {
	if s.turn.Await(ctx) != nil {
		return fmt.Errorf("a preferred allocation of %s hangs: %w", s.resource.Name(), context.Cause(ctx))
	}
	return nil
}

// repair returns an answer without duplicates that has exactly size devices, or all available devices if
// these are fewer. The must-include devices are part of the answer and count as available. Missing devices
// are added in the order of the IDs, because the kubelet would add devices at random.
func repair(q *api.PreferRequest, chosen []string) []string {
	available, mustInclude, size := q.GetAvailable(), q.GetMustInclude(), int(q.GetSize())
	open := map[string]bool{}
	for _, id := range slices.Concat(available, mustInclude) {
		open[id] = true
	}
	kept := slices.DeleteFunc(unique(chosen), func(id string) bool { return !open[id] })
	missing := slices.DeleteFunc(slices.Clone(mustInclude), func(id string) bool {
		return slices.Contains(kept, id)
	})
	if len(missing) == 0 && len(kept) == size {
		return kept
	}
	fill := slices.Sorted(slices.Values(available))
	answer := unique(slices.Concat(mustInclude, kept, fill))
	return answer[:min(size, len(answer))]
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
