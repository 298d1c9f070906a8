// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/test/server"
)

// TestResync has NodeResourceTopologyMatch, with its cache, choose for a node with policy single-numa-node.
// The cache counts out what it sends to the node, and does not count in what ends: once it has refused the
// node it goes by the node's object again as soon as that has the same pods as the API server, which the
// fingerprint tells.
func TestResync(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		p, client := start(t, o)
		c := choice{schedulers: []started{byReserving}}
		c.prepare(t, p)
		n := newZoned(t, client)
		n.publish()
		c.start(p)
		for numa, name := range [...]string{"first", "second"} {
			create(t, client, n.pod(name, 3))
			n.takes(name)
			n.run(name, 3, numa)
		}
		create(t, client, n.pod("third", 2)) // a GPU and a VF are left on each NUMA node
		wait(t, client, "third", func(p *v1.Pod) bool { return refusal(p) != "" })
		n.end("first")
		n.takes("third")
	})
}

// zoned is a node with a NodeResourceTopology object, and the pods that it runs.
type zoned struct {
	t       *testing.T
	client  kubernetes.Interface
	empty   publish.Facts
	name    string
	version int
	came    publish.Exclusive
	runs    map[string][]int // numbers of its devices, of each resource, by pod
}

func newZoned(t *testing.T, client kubernetes.Interface) *zoned {
	t.Helper()
	policy := published.Restricted
	policy.TopologyManagerPolicy = "single-numa-node"
	empty, err := published.Facts("oci-mi300x-derived", 1, true, "", policy)
	if err != nil {
		t.Fatal(err)
	}
	for i := range empty.NUMANodes {
		// the recording does not tell
		empty.NUMANodes[i].Memory = map[string]v1alpha1.Memory{"memory": {Total: 512 << 30}}
	}
	node := server.Node("node-0000", 1)
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &zoned{
		t: t, client: client, empty: empty, name: node.Name, came: publish.Exclusive{}, runs: map[string][]int{},
	}
}

// publish writes the node's object, each time as another version of it.
func (n *zoned) publish() {
	n.t.Helper()
	f := n.empty
	f.Spec.Held, f.Exclusive = nil, n.came
	for pod, numbers := range n.runs {
		devices := map[string]v1alpha1.Set{}
		for _, r := range f.Resources {
			devices[r.Name] = v1alpha1.SetOf(numbers...)
		}
		f.Spec.Held = append(f.Spec.Held,
			v1alpha1.Held{UID: pod, Containers: []v1alpha1.Container{{Name: "app", Devices: devices}}})
	}
	n.version++
	zones := publish.BuildZones(f)
	zones.Annotations = map[string]string{"test.tandem.dev/version": fmt.Sprint(n.version)}
	if err := fleet.ApplyZones(n.t.Context(), n.client.Discovery().RESTClient(), n.name, zones); err != nil {
		n.t.Fatal(err)
	}
}

// pod is a Guaranteed one: the scheduler looks at NUMA nodes for such pods alone.
func (n *zoned) pod(name string, pairs int) *v1.Pod {
	pod := scheduled(name, pairs)
	asked := pod.Spec.Containers[0].Resources.Requests // the limits are the same
	asked[v1.ResourceCPU], asked[v1.ResourceMemory] = resource.MustParse("1"), resource.MustParse("1Gi")
	return pod
}

// takes waits until a pod is scheduled. Each change of the object has waiting pods tried again.
func (n *zoned) takes(name string) {
	n.t.Helper()
	wait(n.t, n.client, name, func(p *v1.Pod) bool {
		n.publish()
		return p.Spec.NodeName == n.name
	})
}

// run gives a pod the first devices of a NUMA node.
func (n *zoned) run(name string, pairs, numa int) {
	n.t.Helper()
	for i := range pairs {
		n.runs[name] = append(n.runs[name], numa*server.GPUs/2+i)
	}
	n.came = append(n.came, types.NamespacedName{Namespace: "default", Name: name})
	n.phase(name, v1.PodRunning)
}

func (n *zoned) end(name string) {
	n.t.Helper()
	delete(n.runs, name)
	n.phase(name, v1.PodSucceeded)
}

func (n *zoned) phase(name string, phase v1.PodPhase) {
	n.t.Helper()
	patch := fmt.Sprintf(`{"status": {"phase": %q}}`, phase)
	_, err := n.client.CoreV1().Pods("default").Patch(n.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	if err != nil {
		n.t.Fatal(err)
	}
}
