// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	drapool "github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// classLister gives the scheduler its device classes.
type classLister map[string]resourceapi.DeviceClass

func (c classLister) List() (list []*resourceapi.DeviceClass, err error) {
	for _, class := range c {
		list = append(list, &class)
	}
	return list, nil
}

func (c classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	class, ok := c[name]
	if !ok {
		return nil, fmt.Errorf("there is no class %s", name)
	}
	return &class, nil
}

// allocate has the scheduler's allocator find the devices of a template on an empty node; nil where it finds
// none.
func allocate(
	t *testing.T, known classLister, template resourceapi.ResourceClaimTemplate, machine string, vfsPerPF int,
) (results []resourceapi.DeviceRequestAllocationResult) {
	t.Helper()
	const nodeName = "node-1"
	var published []*resourceapi.ResourceSlice
	contents := build(t, machine, vfsPerPF, true).Slices
	for i, content := range contents {
		published = append(published, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%03d", i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: drapool.Driver, NodeName: ptr.To(nodeName), Devices: content.Devices,
				SharedCounters: content.SharedCounters,
				Pool: resourceapi.ResourcePool{
					Name: nodeName, Generation: 1, ResourceSliceCount: int64(len(contents)),
				},
			},
		})
	}
	none := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(t.Context(), structured.Features{
		PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true,
	}, none, known, published, dracel.NewCache(10, dracel.Features{EnableConsumableCapacity: true}))
	ready(t, err)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
	template.Spec.Spec.DeepCopyInto(&claim.Spec)
	for _, r := range claim.Spec.Devices.Requests { // the API server's defaults
		if r.Exactly != nil {
			r.Exactly.AllocationMode = resourceapi.DeviceAllocationModeExactCount
		}
		for i := range r.FirstAvailable {
			r.FirstAvailable[i].AllocationMode = resourceapi.DeviceAllocationModeExactCount
		}
	}
	found, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		[]*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatalf("%s on %s: %v", template.Name, machine, err)
	}
	for _, result := range found {
		results = append(results, result.Devices.Results...)
	}
	return results
}

// TestTemplatesAreAllocated: the scheduler finds what a template asks for, as the template says, on machines
// that have it.
func TestTemplatesAreAllocated(t *testing.T) {
	objects := install(t, ofDRA)
	known, all := classLister(classes(t, objects)), claimTemplates(t, objects)
	numa := func(d resourceapi.Device) string {
		return fmt.Sprint(*d.Attributes["resource.kubernetes.io/numaNode"].IntValue)
	}
	text := func(attribute resourceapi.QualifiedName) func(resourceapi.Device) string {
		return func(d resourceapi.Device) string { return *d.Attributes[attribute].StringValue }
	}
	for _, c := range []struct {
		template, machine string
		vfsPerPF, count   int
		of                func(resourceapi.Device) string // what the devices differ in
		values            int                             // and in how many values
	}{
		{"tandem-pairs-1", "oci-mi300x-derived", 8, 1, nil, 0},
		{"tandem-pairs-8", "oci-mi300x-derived", 1, 8, text(drapool.AttributeGPU), 8},
		{"tandem-pairs-4-numa", "oci-mi300x-derived", 8, 4, numa, 1},
		{"tandem-pairs-8-numa", "oci-mi300x-derived", 8, 8, numa, 2},
		{"tandem-pairs-8-hive", "oci-mi300x-derived", 8, 8, text(drapool.AttributeHive), 1},
		{"tandem-pairs-2-hive", "nv-a100pcie-cx6dx-vf-partial", 4, 0, nil, 0},
		{"tandem-pairs-4-switches", "oci-mi300x-derived", 8, 4, text(drapool.AttributeSwitch), 4},
		{"tandem-pairs-4-switches", "amd-mi250-16gcd-8nic", 8, 4, text(drapool.AttributeSwitch), 4},
		{"tandem-pairs-8-switches", "oci-mi300x-derived", 1, 8, text(drapool.AttributeSwitch), 8},
		{"tandem-pairs-16", "amd-mi250-16gcd-8nic", 8, 16, text(drapool.AttributeGPU), 16},
		{"tandem-pairs-16", "oci-mi300x-derived", 8, 0, nil, 0},
		{"tandem-bundles-4", "amd-mi300x-smc-thor2-cpx-derived", 8, 4, text(drapool.AttributeGPU), 4},
		{"tandem-bundles-8", "amd-mi300x-smc-thor2-cpx-derived", 8, 8, text(drapool.AttributeGPU), 8},
	} {
		results := allocate(t, known, all[c.template], c.machine, c.vfsPerPF)
		values := map[string]bool{}
		for _, d := range devices(t, c.machine, c.vfsPerPF, true) {
			if c.of != nil && slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool {
				return r.Device == d.Name
			}) {
				values[c.of(d)] = true
			}
		}
		if len(results) != c.count || len(values) != c.values {
			t.Errorf("%s on %s: %d devices, of %v; want %d of %d", c.template, c.machine, len(results), values,
				c.count, c.values)
		}
		for _, r := range results {
			if strings.HasSuffix(c.template, "-numa") && !strings.HasPrefix(r.Request, "pairs/") {
				t.Errorf("%s: request %s", c.template, r.Request)
			}
		}
	}
}
