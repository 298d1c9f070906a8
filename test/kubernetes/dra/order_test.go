// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
	"github.com/tandem-k8s/tandem/test/simulate"
)

// bystanders are pairs among claims for GPUs and VFs alone, which leave the other half of a pair
// behind.
const bystanders = "1+1:2,2+2,4+4,1+0:2,2+0,0+1:2,0+2"

// The scheduler takes devices in the order in which they are published. No other order of GPUs, VFs and
// pairs, each forwards or backwards, leaves clearly less of them stranded: GPUs and VFs that are free
// on different switches.
func TestOrderStrandsLeast(t *testing.T) {
	if scheduler.Minor < 36 {
		t.Skip("slices have no order before 1.36")
	}
	mix, err := simulate.ParseMix(bystanders)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		machine  string
		vfsPerPF int
	}{
		{"oci-mi300x-derived", 1}, {"oci-mi300x-derived", 2},
		{"amd-mi250-16gcd-8nic", 1}, {"amd-mi250-16gcd-8nic", 2},
	} {
		t.Run(fmt.Sprintf("%s/vfs=%d", c.machine, c.vfsPerPF), func(t *testing.T) {
			t.Parallel()
			m, err := node.Read(c.machine, c.vfsPerPF)
			if err != nil {
				t.Fatal(err)
			}
			contents := build(m, pool.Options{Counters: true, Taints: true}).Slices
			play := func(contents []pool.Slice) *simulated {
				s := newSimulated(t, m, contents, pairRequest)
				s.play(mix, float64(len(m.GPUs))*0.8/meanGPUs(mix), rand.New(rand.NewPCG(*seed, 1)))
				return s
			}
			published := play(contents)
			t.Logf("as published: %v", published)
			for _, backwards := range [][]pool.Type{
				{pool.TypePair}, {pool.TypeGPU}, {pool.TypeVF}, {pool.TypeGPU, pool.TypeVF},
			} {
				other := play(reordered(contents, backwards))
				t.Logf("%v backwards: %v", backwards, other)
				if a, b := published.stranded/published.spent, other.stranded/other.spent; a > b+0.15 {
					t.Errorf("%.2f stranded, and %.2f with %v backwards", a, b, backwards)
				}
			}
		})
	}
}

// reordered are the same devices: pairs first, then GPUs, then VFs, those of some types from last to
// first.
func reordered(contents []pool.Slice, backwards []pool.Type) []pool.Slice {
	byType := map[pool.Type][]resourceapi.Device{}
	var changed []pool.Slice
	for _, content := range contents {
		if len(content.SharedCounters) > 0 {
			changed = append(changed, content)
		}
		for _, d := range content.Devices {
			kind := pool.Type(*d.Attributes["type"].StringValue)
			byType[kind] = append(byType[kind], d)
		}
	}
	var all []resourceapi.Device
	for _, kind := range []pool.Type{pool.TypePair, pool.TypeGPU, pool.TypeVF} {
		if slices.Contains(backwards, kind) {
			slices.Reverse(byType[kind])
		}
		all = append(all, byType[kind]...)
	}
	for part := range slices.Chunk(all, resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		changed = append(changed, pool.Slice{Devices: part})
	}
	return changed
}
