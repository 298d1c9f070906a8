// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
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

// preference asks the Preferrer of a resource.
type preference struct {
	resource  string
	preferrer Preferrer // nil if the resource has no preference
	turn      system.Turn
	observer  RegistrationObserver
	log       *slog.Logger
}

// prefer asks the Preferrer and repairs the answer. Without an answer in time, the Preferrer's Alone choice
// counts.
func (p *preference) prefer(ctx context.Context, q *api.PreferRequest) []string {
	began := time.Now()
	defer func() { p.observer.Preferred(p.resource, time.Since(began)) }()
	if p.preferrer == nil {
		return repair(q, nil)
	}
	given, err := p.ask(ctx, q)
	if err != nil {
		given = p.alone(q, err)
	}
	chosen := repair(q, given)
	if !slices.Equal(given, chosen) {
		p.log.Warn("preferred allocation repaired", "answer", given, "chosen", chosen)
	}
	return chosen
}

// ask asks the Preferrer for at most CoordinatorLimit, one question at a time: a Preferrer that hangs in
// spite of ctx occupies one goroutine, however many questions arrive.
func (p *preference) ask(ctx context.Context, q *api.PreferRequest) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, system.CoordinatorLimit)
	defer cancel()
	return system.AwaitResult(ctx, system.CallInTurn(ctx, p.turn, func() ([]string, error) {
		return system.SurviveResult(p.log, func() ([]string, error) { return p.preferrer.Prefer(ctx, q) })
	}))
}

// alone returns the Preferrer's Alone choice, or nil if it panics.
func (p *preference) alone(q *api.PreferRequest, cause error) []string {
	chosen, _ := system.SurviveResult(p.log, func() ([]string, error) {
		return p.preferrer.Alone(q, cause), nil
	})
	return chosen
}

// alive returns an error if the Preferrer hangs until ctx is done.
func (p *preference) alive(ctx context.Context) error {
	if p.turn.Await(ctx) != nil {
		return fmt.Errorf("a preferred allocation of %s hangs: %w", p.resource, context.Cause(ctx))
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
