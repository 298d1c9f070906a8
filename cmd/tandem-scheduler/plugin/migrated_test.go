// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-k8s/tandem/test/server"
)

// TestMigratedNode: a node in DRA mode keeps the NodeTopology object from its time with device plugins;
// nobody deletes or updates it (docs/dra.md, "Migrating a node"). Its kubelet no longer has the resources, so
// that an unchanged pod gets its devices by a claim (shouldDelegateResourceToDRA in noderesources/fit.go),
// and no Topology Manager compares devices.
func TestMigratedNode(t *testing.T) {
	r := start(t, server.Topology("a", 2, true)) // 8+8 is never admitted under restricted
	node := server.Node("a", 2)
	for _, name := range []v1.ResourceName{server.GPU, server.VF} {
		node.Status.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	if _, got := r.filter(server.Pod("new", 8, 8), info); !got[0].IsSuccess() {
		t.Errorf("a node without the device plugins' resources: %v", got[0])
	}
}
