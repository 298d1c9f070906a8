// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// The names of kubernetes-sigs/dra-driver-cpu (pkg/device/builder.go, commit de980986 of 2026-08-20): the
// driver, its only DeviceClass (templates/deviceclass.yaml of its chart) and the capacity of a group of CPUs.
const (
	cpuDriver   = "dra.cpu"
	cpuCapacity = "dra.cpu/cpu"
	cpusPerPair = 8 // in the templates
)

// numaNode is the attribute's name in a device.
const numaNode = resourceapi.QualifiedName(claim.NUMANode)

// The templates "-cpus" get pairs and CPUs of one NUMA node on every recorded machine, as often as the
// machine has both: claim after claim until the scheduler finds nothing more.
func TestCPUsAndPairsOfOneNUMANode(t *testing.T) {
	total := 0
	for _, machine := range machines.Names() {
		for _, pairs := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/%d", machine, pairs), func(t *testing.T) {
				n := newCPUNode(t, machine, true)
				got, want := 0, n.room(pairs)
				for n.take(t, n.template(t, pairs)) != nil {
					got++
				}
				if got != want {
					t.Errorf("%d claims are allocated; want %d", got, want)
				}
				total += got
				t.Logf("%d claims", got)
			})
		}
	}
	if total < 50 {
		t.Errorf("%d claims on all machines", total)
	}
}

// What is taken of one NUMA node sends the next claim to the other, or leaves the claim pending, if the other
// lacks the other half. A pod stays pending as well if one driver does not publish the attribute.
func TestCPUsDecideTheNUMANode(t *testing.T) {
	fourPairs, cpus := claim.Spec{Pairs: 4}.Claim("pairs"), cpuClaim(120)
	for _, c := range []struct {
		name, machine string
		published     bool // the standard attribute, which releases up to 0.2.0 of the driver lack
		before        []*resourceapi.ResourceClaim
		want          int // NUMA node; -1 for none
	}{
		{"empty", "amd-mi300x-smc-thor2", true, nil, 0},
		{"pairs taken", "amd-mi300x-smc-thor2", true, []*resourceapi.ResourceClaim{fourPairs}, 1},
		{"CPUs taken", "amd-mi300x-smc-thor2", true, []*resourceapi.ResourceClaim{cpus}, 1},
		{"CPUs taken twice", "amd-mi300x-smc-thor2", true, []*resourceapi.ResourceClaim{cpus, cpus}, -1},
		{"all of one, half of the other", "amd-mi300x-smc-thor2", true,
			[]*resourceapi.ResourceClaim{cpus, fourPairs, claim.Spec{Pairs: 1}.Claim("pair")}, -1},
		{"release 0.2.0", "amd-mi300x-smc-thor2", false, nil, -1},
		{"no NUMA node of the GPUs", "nv-a100pcie-cx6dx-vf-partial", true, nil, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newCPUNode(t, c.machine, c.published)
			for _, other := range c.before {
				if n.take(t, other) == nil {
					t.Fatalf("%s is not allocated", other.Name)
				}
			}
			got := -1
			if result := n.take(t, n.template(t, 4)); result != nil {
				got = n.node(t, result)
			}
			if got != c.want {
				t.Errorf("NUMA node %d; want %d", got, c.want)
			}
		})
	}
}

// cpuNode is a node with Tandem's driver and the driver of CPUs.
type cpuNode struct {
	*scheduler.Scheduler
	devices map[string]map[string]resourceapi.Device // by driver and name
}

// newCPUNode returns a node with the CPUs of a recorded machine. Without the standard attribute the devices
// are those of release 0.2.0.
func newCPUNode(t *testing.T, machine string, standard bool) *cpuNode {
	t.Helper()
	m, err := node.Read(machine, 8)
	if err != nil {
		t.Fatal(err)
	}
	theirs := []pool.Slice{{Devices: cpuDevices(machines.Sys(t, machine, 0), standard)}}
	ours := build(m, pool.Options{Counters: scheduler.Minor >= 36}).Slices
	n := &cpuNode{devices: map[string]map[string]resourceapi.Device{}}
	var published []*resourceapi.ResourceSlice
	for driver, contents := range map[string][]pool.Slice{cpuDriver: theirs, pool.Driver: ours} {
		n.devices[driver] = map[string]resourceapi.Device{}
		for _, content := range contents {
			for _, d := range content.Devices {
				n.devices[driver][d.Name] = d
			}
		}
		published = append(published, scheduler.Publish(driver, contents)...)
	}
	known := maps.Clone(classes(t))
	known[cpuDriver] = &resourceapi.DeviceClass{}
	known[cpuDriver].Name = cpuDriver
	known[cpuDriver].Spec.Selectors = []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "dra.cpu"`}},
	}
	features := scheduler.Defaults()
	features.ConsumableCapacity = true // which the driver needs in its mode grouped; the default from 1.36 on
	n.Scheduler = scheduler.New(published, known, features)
	return n
}

// cpuDevices are the driver's devices of a machine in its mode grouped, by NUMA node (both are defaults).
func cpuDevices(sys fs.FS, standard bool) (devices []resourceapi.Device) {
	nodes, err := topology.CPUs(sys)
	if err != nil {
		panic(err)
	}
	for _, number := range slices.Sorted(maps.Keys(nodes)) {
		node, count, smt, many := int64(number), int64(len(nodes[number])), true, true
		if count == 0 {
			continue // no device, as for a NUMA node with memory alone
		}
		d := resourceapi.Device{
			Name: fmt.Sprintf("cpudevnuma%03d", number), AllowMultipleAllocations: &many,
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"dra.cpu/socketID":   {IntValue: &node},
				"dra.cpu/smtEnabled": {BoolValue: &smt},
				"dra.cpu/numCPUs":    {IntValue: &count},
				"dra.net/numaNode":   {IntValue: &node},
				"dra.cpu/numaNodeID": {IntValue: &node},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				cpuCapacity: {Value: *resource.NewQuantity(count, resource.DecimalSI)},
			},
		}
		if standard {
			d.Attributes[numaNode] = resourceapi.DeviceAttribute{IntValue: &node}
		}
		devices = append(devices, d)
	}
	return devices
}

// cpuClaim asks for CPUs of one NUMA node, and nothing else.
func cpuClaim(count int64) *resourceapi.ResourceClaim {
	r := claim.Request("cpus", cpuDriver, 1)
	quantity := *resource.NewQuantity(count, resource.DecimalSI)
	r.Exactly.Capacity = &resourceapi.CapacityRequirements{
		Requests: map[resourceapi.QualifiedName]resource.Quantity{cpuCapacity: quantity},
	}
	return claim.New("cpus", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{r}})
}

// template returns a claim from the template for a number of pairs, with the API server's defaults.
func (n *cpuNode) template(t *testing.T, pairs int) *resourceapi.ResourceClaim {
	t.Helper()
	content, err := os.ReadFile("../../../deployments/dra/claim-templates/cpus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var template resourceapi.ResourceClaimTemplate
		if err := yaml.UnmarshalStrict([]byte(document), &template); err != nil {
			t.Fatal(err)
		}
		if template.Name != fmt.Sprintf("tandem-pairs-%d-cpus", pairs) {
			continue
		}
		for _, r := range template.Spec.Spec.Devices.Requests {
			r.Exactly.AllocationMode = resourceapi.DeviceAllocationModeExactCount
			r.Exactly.Count = max(1, r.Exactly.Count)
		}
		return claim.New(template.Name, template.Spec.Spec.Devices)
	}
	t.Fatalf("no template has %d pairs", pairs)
	return nil
}

// take allocates a claim, and returns nil if the scheduler finds no devices. Devices of a template are as the
// template says.
func (n *cpuNode) take(t *testing.T, c *resourceapi.ResourceClaim) *resourceapi.AllocationResult {
	t.Helper()
	result, _, err := n.Within(found, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	if result == nil {
		return nil
	}
	if len(c.Spec.Devices.Constraints) > 0 {
		n.check(t, c, result)
	}
	n.Take(result)
	return result
}

// check checks the devices of a template: a group of CPUs, of which the claim consumes eight for each pair,
// and the pairs, all of one NUMA node.
func (n *cpuNode) check(t *testing.T, c *resourceapi.ResourceClaim, result *resourceapi.AllocationResult) {
	t.Helper()
	pairs, cpus := 0, int64(0)
	for _, r := range result.Devices.Results {
		if r.Driver == pool.Driver {
			pairs++
			continue
		}
		consumed := r.ConsumedCapacity[cpuCapacity]
		cpus += consumed.Value()
	}
	want := int(c.Spec.Devices.Requests[1].Exactly.Count)
	if pairs != want || cpus != int64(cpusPerPair*want) {
		t.Errorf("%s: %d pairs and %d CPUs", c.Name, pairs, cpus)
	}
	n.node(t, result)
}

// node is the NUMA node of all devices of a result.
func (n *cpuNode) node(t *testing.T, result *resourceapi.AllocationResult) int {
	t.Helper()
	of := map[int64][]string{}
	for _, r := range result.Devices.Results {
		at := n.devices[r.Driver][r.Device].Attributes[numaNode].IntValue
		if at == nil {
			t.Fatalf("%s has no NUMA node", r.Device)
		}
		of[*at] = append(of[*at], r.Device)
	}
	if len(of) != 1 {
		t.Fatalf("devices by NUMA node: %v", of)
	}
	for node := range of {
		return int(node)
	}
	return -1
}

// room is how many claims for a number of pairs have room on the empty node: in each NUMA node as many as its
// GPUs and its CPUs suffice for.
func (n *cpuNode) room(pairs int) (claims int) {
	gpus := map[int64]map[string]bool{}
	for _, d := range n.devices[pool.Driver] {
		_, gpu := d.Attributes[pool.AttributeGPU]
		_, vf := d.Attributes[pool.AttributeVF]
		at := d.Attributes[numaNode].IntValue
		if !gpu || !vf || at == nil { // before 1.36 pairs have another type
			continue
		}
		if gpus[*at] == nil {
			gpus[*at] = map[string]bool{}
		}
		gpus[*at][partition(d)] = true
	}
	for _, d := range n.devices[cpuDriver] {
		if at := d.Attributes[numaNode].IntValue; at != nil {
			capacity := d.Capacity[cpuCapacity].Value
			claims += min(len(gpus[*at])/pairs, int(capacity.Value())/(cpusPerPair*pairs))
		}
	}
	return claims
}

// partition is the GPU of a pair, or the GPU's partition.
func partition(d resourceapi.Device) string {
	name := *d.Attributes[pool.AttributeGPU].StringValue
	if part := d.Attributes[pool.AttributePartition].StringValue; part != nil {
		name += *part
	}
	return name
}
