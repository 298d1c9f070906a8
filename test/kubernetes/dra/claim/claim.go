// SPDX-License-Identifier: Apache-2.0

// Package claim writes ResourceClaims in the forms of users, templates and the scheduler.
package claim

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The device classes, as deployed.
const (
	GPUClass    = "gpu.tandem.dev"
	VFClass     = "vf.tandem.dev"
	PairClass   = "pair.tandem.dev"
	BundleClass = "bundle.tandem.dev"
)

// The attributes for constraints.
const (
	NUMANode   = resourceapi.FullyQualifiedName("resource.kubernetes.io/numaNode")
	PCIeRoot   = resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")
	PCIeSwitch = resourceapi.FullyQualifiedName("tandem.dev/pcieSwitch")
	Hive       = resourceapi.FullyQualifiedName("tandem.dev/hive")
)

// Spec is a claim's request: counts of devices, each kind in a request of its own, in this order.
type Spec struct {
	Pairs, GPUs, VFs, Bundles int

	// Near prefers all pairs on one NUMA node (firstAvailable).
	Near bool
	// Same is an attribute that all pairs must share; "" for none.
	Same resourceapi.FullyQualifiedName
	// Distinct requires a separate switch for every pair.
	Distinct bool
}

// String returns a short form, "4 pairs + 1 GPU, near".
func (s Spec) String() string {
	var parts []string
	for _, part := range []struct {
		count int
		name  string
	}{{s.Pairs, "pairs"}, {s.GPUs, "GPUs"}, {s.VFs, "VFs"}, {s.Bundles, "bundles"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.name))
		}
	}
	text := strings.Join(parts, " + ")
	if s.Near {
		text += ", near"
	}
	if s.Same != "" {
		text += ", one " + string(s.Same)
	}
	if s.Distinct {
		text += ", switches of their own"
	}
	return text
}

// Claim writes the claim.
func (s Spec) Claim(name string) *resourceapi.ResourceClaim {
	var devices resourceapi.DeviceClaim
	switch {
	case s.Pairs > 0 && s.Near:
		devices.Requests = append(devices.Requests, resourceapi.DeviceRequest{
			Name: "pairs", FirstAvailable: []resourceapi.DeviceSubRequest{
				alternative("near", PairClass, s.Pairs), alternative("any", PairClass, s.Pairs),
			},
		})
		devices.Constraints = append(devices.Constraints, match(NUMANode, "pairs/near"))
	case s.Pairs > 0:
		devices.Requests = append(devices.Requests, Request("pairs", PairClass, s.Pairs))
	}
	if s.Same != "" {
		devices.Constraints = append(devices.Constraints, match(s.Same, "pairs"))
	}
	if s.Distinct {
		attribute := PCIeSwitch
		devices.Constraints = append(devices.Constraints, resourceapi.DeviceConstraint{
			Requests: []string{"pairs"}, DistinctAttribute: &attribute,
		})
	}
	for _, more := range []struct {
		count       int
		name, class string
	}{{s.GPUs, "gpus", GPUClass}, {s.VFs, "vfs", VFClass}, {s.Bundles, "bundles", BundleClass}} {
		if more.count > 0 {
			devices.Requests = append(devices.Requests, Request(more.name, more.class, more.count))
		}
	}
	return New(name, devices)
}

// Plain requests pairs by constraints alone: for each pair a GPU and a VF with the same switch.
func Plain(name string, pairs int) *resourceapi.ResourceClaim {
	return Matched(name, pairs, PCIeSwitch, func(*resourceapi.ExactDeviceRequest) {})
}

// Matched is Plain with any attribute. edit may change the request for each VF.
func Matched(
	name string, pairs int, attribute resourceapi.FullyQualifiedName,
	edit func(vf *resourceapi.ExactDeviceRequest),
) *resourceapi.ResourceClaim {
	var devices resourceapi.DeviceClaim
	for i := range pairs {
		gpu, vf := fmt.Sprintf("gpu-%d", i), fmt.Sprintf("vf-%d", i)
		ofVF := Request(vf, VFClass, 1)
		edit(ofVF.Exactly)
		devices.Requests = append(devices.Requests, Request(gpu, GPUClass, 1), ofVF)
		devices.Constraints = append(devices.Constraints, match(attribute, gpu, vf))
	}
	return New(name, devices)
}

// New returns a claim.
func New(name string, devices resourceapi.DeviceClaim) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: devices},
	}
}

// Request asks for an exact count of a class.
func Request(name, class string, count int) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(count),
	}}
}

func alternative(name, class string, count int) resourceapi.DeviceSubRequest {
	return resourceapi.DeviceSubRequest{
		Name: name, DeviceClassName: class,
		AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(count),
	}
}

func match(attribute resourceapi.FullyQualifiedName, requests ...string) resourceapi.DeviceConstraint {
	return resourceapi.DeviceConstraint{Requests: requests, MatchAttribute: &attribute}
}
