// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// TestManyNUMANodes: a kubelet with the option max-allowable-numa-nodes runs on a machine with ten NUMA
// nodes. When it asks for a VF without a NUMA node first, the request to placement has free GPUs.
func TestManyNUMANodes(t *testing.T) {
	var free []device.Device
	for i := range 10 {
		free = append(free, device.Device{
			ID: fmt.Sprint("gpu", i), Address: topology.Address{Bus: uint8(i)}, NUMA: topology.Node(i), Healthy: true,
		})
	}
	vf := device.Device{ID: "vf", Address: topology.Address{Bus: 1, Function: 1}, Healthy: true}
	set := device.Resources{
		gpus: device.NewResource(gpus, device.GPU, free),
		vfs:  device.NewResource(vfs, device.VF, []device.Device{vf}),
	}
	b := newBooks(topology.Assemble(nil, nil, nil), set, nil)
	q := &api.PreferRequest{Resource: vfs, Available: []string{vf.ID}, Size: 1}
	c := &recipient{Asker: &asker{Requests: map[string]int{gpus: 1, vfs: 1}}}
	request, _ := requestBuilder{prediction{books: b}, q, c, newOffer(b, q, c)}.buildRequest()
	if half := request.GPUs[0]; half.Count != 1 || len(half.Free) == 0 {
		t.Errorf("the request has %d GPUs of %d free", half.Count, len(half.Free))
	}
}
