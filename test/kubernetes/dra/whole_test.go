// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
)

// The p5 has four EFA devices for each GPU, whole functions. A claim for a pair and three more devices of the
// pair's switch gets all four, for each of the eight GPUs.
func TestWholeNICsOfTheGPU(t *testing.T) {
	if scheduler.Minor < 36 {
		t.Skip("without counters the pairs are other devices")
	}
	m, err := node.Read("nv-h100-aws-p5", 0)
	if err != nil {
		t.Fatal(err)
	}
	contents := build(m, pool.Options{Counters: true, Taints: true}).Slices
	s := scheduler.New(scheduler.Publish(pool.Driver, contents), classes(t), scheduler.Defaults())
	match := claim.PCIeSwitch
	request := claim.Spec{Pairs: 1, VFs: 3}.Claim("claim")
	request.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{
		{Requests: []string{"pairs", "vfs"}, MatchAttribute: &match},
	}
	for i := range 8 {
		result, _, err := s.Within(found, request)
		if err != nil || result == nil || len(result.Devices.Results) != 4 {
			t.Fatalf("claim %d: %v, %v", i, result, err)
		}
		s.Take(result)
	}
	if result, _, err := s.Within(found, request); err != nil || result != nil {
		t.Errorf("a ninth claim gets %v, %v", result, err)
	}
}
