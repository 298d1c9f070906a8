// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/tandem-k8s/tandem/topology/placement"
)

// TestOptionsAreComputedOnce: queries at the same time compute the options of a decision once, however many
// there are. 32 queries of one client may be in progress (maxCalls in package coordination).
func TestOptionsAreComputedOnce(t *testing.T) {
	tree, gpus, nics := deviceAddresses(t)
	replicas, hcas := shareDevices(gpus, 50), shareDevices(nics[:min(8, len(nics))], 25)
	allocated := func(queries int) int {
		var state committedState
		for range 8 {
			q := decide(t, tree, shareDevices(gpus, 1), shareDevices(nics, 1))
			q.request.GPUs[0].Free, q.request.VFs[0].Free = slices.Clone(replicas), slices.Clone(hcas)
			q.request.Spare = placement.Devices{GPUs: slices.Clone(replicas), VFs: slices.Clone(hcas)}
			state.history.addQuestion(q)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		for range queries {
			all.Go(state.addOptions)
		}
		all.Wait()
		runtime.ReadMemStats(&after)
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	one, many := allocated(1), allocated(32)
	t.Logf("%d MiB for one query, %d MiB for 32", one>>20, many>>20)
	if many > 4*one {
		t.Errorf("32 queries at the same time allocate %d MiB, one allocates %d MiB", many>>20, one>>20)
	}
}
