// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// ErrSteps is returned by Allocate when the search took more steps than allowed.
var ErrSteps = errors.New("search given up")

// celEntries is how many expressions the real scheduler keeps compiled
// (pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go).
const celEntries = 10

// Scheduler allocates claims on one node, one after the other.
type Scheduler struct {
	slices    []*resourceapi.ResourceSlice
	classes   Classes
	features  structured.Features
	cel       *cel.Cache
	allocated structured.AllocatedState
}

// New returns the scheduler of a cluster with these slices and classes.
func New(slices []*resourceapi.ResourceSlice, classes Classes, features structured.Features) *Scheduler {
	return &Scheduler{
		slices: slices, classes: classes, features: features,
		cel: cel.NewCache(celEntries, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity}),
		allocated: structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		},
	}
}

// Allocate returns devices for a claim, or nil if there are none, and reserves nothing. It returns the error
// of ctx if the search does not end in time.
func (s *Scheduler) Allocate(
	ctx context.Context, claim *resourceapi.ResourceClaim,
) (*resourceapi.AllocationResult, error) {
	allocator, err := structured.NewAllocator(ctx, s.features, s.allocated, s.classes, s.slices, s.cel)
	if err != nil {
		return nil, fmt.Errorf("make allocator: %w", err)
	}
	results, err := allocator.Allocate(ctx, node(), []*resourceapi.ResourceClaim{claim})
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return &results[0], nil
}

// Within is Allocate with a limit of steps, and returns the number of steps. A step is the search for one
// device; unlike time, steps are equal on all machines. Over the limit the error is ErrSteps.
func (s *Scheduler) Within(
	most int, claim *resourceapi.ResourceClaim,
) (result *resourceapi.AllocationResult, steps int, err error) {
	ctx := &counting{Context: context.Background(), left: most}
	result, err = s.Allocate(ctx, claim)
	return result, most - ctx.left, err
}

// Take marks the devices of a result as taken.
func (s *Scheduler) Take(result *resourceapi.AllocationResult) {
	for _, r := range result.Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			s.allocated.AllocatedDevices.Insert(id)
			continue
		}
		s.allocated.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		s.allocated.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}

// Release releases the devices of a result.
func (s *Scheduler) Release(result *resourceapi.AllocationResult) {
	for _, r := range result.Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			s.allocated.AllocatedDevices.Delete(id)
			continue
		}
		s.allocated.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, r.ShareID))
		s.allocated.AggregatedCapacity.Remove(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}

// counting is a context that ends after a number of calls of its methods: the allocator makes one call for
// each device that it searches.
type counting struct {
	context.Context
	left int
}

// Err counts.
func (c *counting) Err() error {
	if c.left <= 0 {
		return ErrSteps
	}
	c.left--
	return nil
}
