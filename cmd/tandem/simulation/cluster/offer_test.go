// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/publish/object"
	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/cluster/verdict"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// TestOfferIsThePlugins: the scheduler "tandem" of the simulation rates a node as the scheduler plugin does
// (observation.rate in cmd/tandem-scheduler/plugin), here a node whose free devices cannot all be paired.
func TestOfferIsThePlugins(t *testing.T) {
	f, err := published.Facts("oci-mi300x-derived", 1, true, "", published.Restricted)
	if err != nil {
		t.Fatal(err)
	}
	topology := &v1alpha1.NodeTopology{Spec: object.Build(f)}
	topology.Spec.Held = []v1alpha1.Held{{UID: "held", Containers: []v1alpha1.Container{{
		Name: "app", Devices: map[string]v1alpha1.Set{published.GPUs: "0", published.VFs: "1"},
	}}}}
	node, err := verdict.New(topology, nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := v1.ResourceList{}
	for _, name := range []v1.ResourceName{published.GPUs, published.VFs} {
		limits[name] = *resource.NewQuantity(2, resource.DecimalSI)
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "app", Resources: v1.ResourceRequirements{Limits: limits},
	}}}}
	before := node.State(func(types.UID) bool { return true })
	after := before.Clone()
	want := rank.NewOffer(after.Admit(pod).Pairs, before.Room(), after)
	if want.Stranded == 0 {
		t.Error("no pair is stranded")
	}
	if got := simulated(t).offer(); got != want {
		t.Errorf("simulated %+v\nthe plugin %+v", got, want)
	}
}

// simulated returns the same node and request as a simulated scheduler sees them.
func simulated(t *testing.T) *view {
	t.Helper()
	f, err := published.Facts("oci-mi300x-derived", 1, true, "", published.Restricted)
	if err != nil {
		t.Fatal(err)
	}
	devices := map[string][]placement.Device{}
	for _, r := range f.Resources {
		for _, d := range r.Devices {
			devices[r.Name] = append(devices[r.Name], d.Placed())
		}
	}
	node, err := world.New("node", f.Tree, devices[published.GPUs], devices[published.VFs], nil)
	if err != nil {
		t.Fatal(err)
	}
	way, err := simulation.FindWays([]string{"tandem"})
	if err != nil {
		t.Fatal(err)
	}
	state := world.NewState(node, world.Rules{Policy: hints.Restricted})
	state.Take(world.Container{Devices: [2][]int{{0}, {1}}})
	return &view{state: state, prefer: way[0].Prefer(node), request: world.Request{GPUs: 2, VFs: 2}}
}
