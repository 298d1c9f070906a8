// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/test/server"
)

// matching is a scheduler of Kubernetes 1.34 with NodeResourceTopologyMatch, the last one that the plugin is
// served for: older than Kubernetes lets a scheduler be, which is one minor version behind the API server.
// The plugin reserves what pods ask for until it reads the node anew.
var matching = choice{schedulers: []started{{
	program: "nrtmatch", name: "default-scheduler", profiles: mostAllocated + `
  - name: NodeResourceTopologyMatch
    args: {scoringStrategy: {type: LeastNUMANodes}, cacheResyncPeriodSeconds: 1}
  plugins:
    multiPoint: {enabled: [{name: NodeResourceTopologyMatch, weight: 10}]}
`,
}}}

// zonesCollection is the path of the NodeResourceTopology objects at the API server.
const zonesCollection = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

// defineZones defines the objects that the scheduler reads, and lets it read them.
func defineZones(t *testing.T, p *plane.Plane) {
	t.Helper()
	ctx, admin := t.Context(), p.Admin()
	if err := manifest.ApplyFolder(ctx, admin, "../../../definitions/noderesourcetopology", ""); err != nil {
		t.Fatal(err)
	}
	if err := manifest.Served(ctx, admin, zonesCollection); err != nil {
		t.Fatal(err)
	}
	rights := p.Client(admin).RbacV1()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "zones"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"topology.node.k8s.io"}, Resources: []string{"noderesourcetopologies"},
			Verbs: []string{"get", "list", "watch"},
		}},
	}
	if _, err := rights.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler",
		}},
	}
	if _, err := rights.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestResync has NodeResourceTopologyMatch, with its cache, choose for a node with policy single-numa-node.
// The cache counts out what it sends to the node, and does not count in what ends: once it has refused the
// node it goes by the node's object again as soon as that has the same pods as the API server, which the
// fingerprint tells.
func TestResync(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		p, client := start(t, o)
		defineZones(t, p)
		n := newZoned(t, client)
		n.publish()
		matching.start(p)
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
	n.apply(zones)
}

// apply applies the zones like the node's publisher.
func (n *zoned) apply(zones *publish.ResourceTopology) {
	n.t.Helper()
	zones.Name, zones.Labels = n.name, map[string]string{"app.kubernetes.io/managed-by": "tandem"}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.name, UID: types.UID(n.name)}
	zones.OwnerReferences = []metav1.OwnerReference{owner} // no collector compares the UID
	body, err := json.Marshal(zones)
	if err != nil {
		n.t.Fatal(err)
	}
	err = n.client.Discovery().RESTClient().Patch(types.ApplyPatchType).AbsPath(zonesCollection, n.name).
		Param("fieldManager", "tandem").Body(body).Do(n.t.Context()).Error()
	if err != nil {
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
