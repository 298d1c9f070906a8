// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/form"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
)

var slow = flag.Bool("slow", false,
	"measure what takes seconds, and nothing else; -benchtime 1x is meant")

// patience is how long the scheduler's Filter looks for devices on a node, by default
// (DynamicResourcesArgs.FilterTimeout).
const patience = 10 * time.Second

// way is a way to publish a machine, and to ask for pairs of it.
type way struct {
	name    string
	slices  func(pool.Machine) []pool.Slice
	claim   func(name string, pairs int) *resourceapi.ResourceClaim
	endless bool // to find that there are not enough takes seconds
}

func ways() []way {
	list := []way{
		{"plain", form.Plain, claim.Plain, true},
		{"pf-capacity", form.PFs, capacityClaim, true},
		{"pair", published(0), pairsClaim, false},
		{"pair-16-per-pf", published(16), pairsClaim, false},
	}
	if scheduler.Minor < 36 { // capacities cannot be consumed
		return slices.DeleteFunc(list, func(w way) bool { return w.name == "pf-capacity" })
	}
	return list
}

func published(vfsPerPF int) func(pool.Machine) []pool.Slice {
	counters := scheduler.Minor >= 36
	return func(m pool.Machine) []pool.Slice {
		return build(m, pool.Options{Counters: counters, Taints: counters, VFsPerPF: vfsPerPF}).Slices
	}
}

func pairsClaim(name string, pairs int) *resourceapi.ResourceClaim {
	return claim.Spec{Pairs: pairs}.Claim(name)
}

func capacityClaim(name string, pairs int) *resourceapi.ResourceClaim {
	return claim.Matched(name, pairs, claim.PCIeSwitch, func(vf *resourceapi.ExactDeviceRequest) {
		vf.Capacity = &resourceapi.CapacityRequirements{
			Requests: map[resourceapi.QualifiedName]resource.Quantity{form.Capacity: resource.MustParse("1")},
		}
	})
}

// BenchmarkClaim asks for pairs on a free node, and for one on each GPU where the VFs of one switch are
// all taken (free=false). by is the way that the node's devices are published. Beside the mean of one
// Allocate it reports the median, and the steps of the search, which are the same on every computer.
func BenchmarkClaim(b *testing.B) {
	for _, c := range []struct {
		machine  string
		vfsPerPF int
		pairs    []int
		// how many there are not, once a switch has no VF left; 0 for a search that is endless in every way
		missing int
	}{
		{"oci-mi300x-derived", 1, []int{1, 4, 8}, 8},
		{"oci-mi300x-derived", 8, []int{1, 4, 8}, 8},
		{"oci-mi300x-derived", 127, []int{1, 4, 8}, 8},
		{"amd-mi250-16gcd-8nic", 8, []int{1, 4, 8, 16}, 16},
		{"amd-mi300x-smc-thor2-cpx-derived", 8, []int{1, 4, 8, 16}, 0},
	} {
		m, err := node.Read(c.machine, c.vfsPerPF)
		if err != nil {
			b.Fatal(err)
		}
		for _, w := range ways() {
			name := fmt.Sprintf("gpus=%d/vfs=%d", len(m.GPUs), len(m.VFs))
			s := scheduler.New(scheduler.Publish(pool.Driver, w.slices(m)), classes(b), scheduler.Defaults())
			for _, pairs := range c.pairs {
				b.Run(fmt.Sprintf("%s/pairs=%d/free=true/by=%s", name, pairs, w.name), func(b *testing.B) {
					measure(b, s, w.claim("claim", pairs), true)
				})
			}
			if c.missing == 0 {
				continue
			}
			exhaust(s, w.slices(m), m.GPUs[0].Switch)
			b.Run(fmt.Sprintf("%s/pairs=%d/free=false/by=%s", name, c.missing, w.name), func(b *testing.B) {
				if w.endless != *slow {
					b.Skip("what takes seconds is measured once, with -slow, and nothing else then")
				}
				measure(b, s, w.claim("claim", c.missing), false)
			})
		}
	}
}

// measure allocates a claim again and again.
func measure(b *testing.B, s *scheduler.Scheduler, c *resourceapi.ResourceClaim, exists bool) {
	if *slow && exists {
		b.Skip("-slow measures what takes seconds alone")
	}
	samples := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		start := time.Now()
		result, err := s.Allocate(ctx, c)
		if took := time.Since(start); len(samples) < cap(samples) {
			samples = append(samples, took)
		}
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			b.Logf("given up after %v", patience)
		} else if err != nil || (result != nil) != exists {
			b.Fatalf("found %v, %v; want something: %t", result, err, exists)
		}
	}
	slices.Sort(samples)
	b.ReportMetric(float64(samples[len(samples)/2].Nanoseconds()), "p50-ns")
}

// exhaust takes all that can be had of the VFs of one switch.
func exhaust(s *scheduler.Scheduler, contents []pool.Slice, on string) {
	var results []resourceapi.DeviceRequestAllocationResult
	for _, content := range contents {
		for _, d := range content.Devices {
			at, kind := d.Attributes["pcieSwitch"].StringValue, pool.Type(*d.Attributes["type"].StringValue)
			if at != nil && *at == on && kind != pool.TypeGPU && kind != pool.TypeBundle {
				results = append(results, all(d)...)
			}
		}
	}
	s.Take(&resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}})
}

// all is what claims have that have all of a device.
func all(d resourceapi.Device) []resourceapi.DeviceRequestAllocationResult {
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "all", Driver: pool.Driver, Pool: scheduler.NodeName, Device: d.Name,
	}
	capacity, shared := d.Capacity[form.Capacity]
	if !shared {
		return []resourceapi.DeviceRequestAllocationResult{result}
	}
	id := types.UID(d.Name)
	result.ShareID = &id
	result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{form.Capacity: capacity.Value}
	return []resourceapi.DeviceRequestAllocationResult{result}
}
