package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/test/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/server"
)

// podGroups is where each version serves groups of pods.
var podGroups = map[string]string{"1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1"}

// TestGang has a group of three pods with four pairs each wait on two nodes. By count they fit: eight pairs
// are free on one node and six on the other. But of the six no four are on one NUMA node, so that the kubelet
// would refuse the third pod. None is sent before the pod that is in the way on one NUMA node is gone; then
// all three start with all their pairs.
func TestGang(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		api := podGroups[o.Version[:4]]
		o.APIs, o.Gates = []string{api + "=true"}, map[string]bool{"GenericWorkload": true}
		if o.Version < "1.37" {
			o.Gates["GangScheduling"] = true
		}
		_, client := startGang(t, o, api)
		for i := range 3 {
			create(t, client, gang(i))
		}
		for i := range 3 {
			wait(t, client, gang(i).Name, func(p *v1.Pod) bool {
				if p.Spec.NodeName != "" {
					t.Errorf("pod %s is sent to %s before the others can be", p.Name, p.Spec.NodeName)
				}
				return refusal(p) != "" || p.Spec.NodeName != ""
			})
		}
		for i := range 3 {
			wait(t, client, gang(i).Name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
		}
	})
}

// startGang starts two nodes, of which the second has a pod with a pair on each NUMA node, one of which ends.
func startGang(t *testing.T, o plane.Options, api string) (*plane.Plane, kubernetes.Interface) {
	t.Helper()
	p, client := start(t, o)
	told := make(chan fleet.Pod, 100)
	tell := func(p fleet.Pod) { told <- p }
	nodes, err := fleet.New(t.Context(), client, fleet.Options{Nodes: 2, VFs: 1}, tell)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(told)
		for p := range told {
			if !p.Verdict.Admitted || p.Verdict.Pairs != p.Verdict.Wanted {
				t.Errorf("%s on %s: %+v", p.Job, p.Node, p.Verdict)
			}
		}
	})
	// The large pod is in the way of the second small one, and gone when the third comes.
	for _, w := range []struct {
		name   string
		pairs  int
		life   time.Duration
		before v1.PodPhase // to be seen before the next one comes
	}{
		{"large", 4, time.Second, v1.PodRunning}, {"staying", 1, 0, v1.PodRunning},
		{"large", 0, 0, v1.PodSucceeded}, {"ending", 1, 30 * time.Second, v1.PodRunning},
	} {
		if w.pairs > 0 {
			wish := fleet.Wish{GPUs: w.pairs, VFs: w.pairs, Life: w.life, Node: "node-0001"}
			if err := nodes.Create(ctx, w.name, wish); err != nil {
				t.Fatal(err)
			}
		}
		wait(t, client, w.name, func(p *v1.Pod) bool { return p.Status.Phase == w.before })
	}
	group := fmt.Sprintf(`{"apiVersion": %q, "kind": "PodGroup", "metadata": {"name": "gang"},
		"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}`, api)
	err = client.Discovery().RESTClient().Post().AbsPath("/apis/" + api + "/namespaces/default/podgroups").
		Body([]byte(group)).Do(ctx).Error()
	if err != nil {
		t.Fatal(err)
	}
	choice{schedulers: []started{byTandem}}.start(p)
	return p, client
}

func gang(i int) *v1.Pod {
	four := *resource.NewQuantity(4, resource.DecimalSI)
	asked := v1.ResourceList{server.GPU: four, server.VF: four}
	name := fmt.Sprint("gang-", i)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test.tandem.dev/job": name}},
		Spec: v1.PodSpec{
			SchedulerName: byTandem.name, RestartPolicy: v1.RestartPolicyNever,
			SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: new("gang")},
			Containers: []v1.Container{{
				Name: "app", Image: "app", Resources: v1.ResourceRequirements{Limits: asked},
			}},
		},
	}
}

func create(t *testing.T, client kubernetes.Interface, pod *v1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// refusal is why a pod finds no node.
func refusal(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// wait waits until a pod is as it should be.
func wait(t *testing.T, client kubernetes.Interface, name string, satisfied func(*v1.Pod) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for seen := new(v1.Pod); ; {
		pod, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			seen = pod
		}
		if satisfied(seen) {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("pod %s on %q is %s, %q; %v", name, seen.Spec.NodeName,
				seen.Status.Phase, refusal(seen), err)
		}
	}
}
