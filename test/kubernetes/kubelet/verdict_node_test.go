// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// judgedNode is a world with the real managers and the real coordinator, in this process.
type judgedNode struct {
	t           *testing.T
	world       *judgedWorld
	dir         string
	node        *node.Node
	coordinator *admission.Coordinator
	random      *rand.Rand
	admitted    []*v1.Pod
	pending     *v1.Pod // in admission
	late        *tardy
	seen        map[string]int
}

func startJudged(t *testing.T, w *judgedWorld, random *rand.Rand) *judged {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tandem-") // the kubelet waits for the disk with every pod
	if err != nil {
		dir, err = os.MkdirTemp(scratch, "")
	}
	must(t, err)
	n := &judgedNode{
		t: t, world: w, dir: dir, random: random, seen: map[string]int{}, late: &tardy{},
	}
	if n.node, err = node.Start(dir, w.options()); err != nil {
		t.Fatalf("%v: %v", w, err)
	}
	n.coordinator, err = admission.New(admission.Config{
		RunDir: dir, Log: slog.New(n.late), Machine: n, Kubelet: n, Pods: n, MayList: true,
	})
	must(t, err)
	for _, o := range w.offered {
		must(t, n.node.Connect(t.Context(), n.plugin(o.Name)))
		n.announce(&o)
	}
	return &judged{judgedNode: n}
}

// tardy notes what the coordinator warns of: on a busy machine it decides without what comes too late.
type tardy struct {
	mu    sync.Mutex
	warns []string
}

func (l *tardy) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *tardy) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *tardy) WithGroup(string) slog.Handler                    { return l }

func (l *tardy) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late := []string{"PodResources not read", "allocatable CPUs not read"}; slices.ContainsFunc(late,
		func(prefix string) bool { return strings.HasPrefix(r.Message, prefix) }) {
		l.warns = append(l.warns, r.Message)
	}
	return nil
}

// take returns what came since the last take.
func (l *tardy) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	warns := l.warns
	l.warns = nil
	return warns
}

func (n *judgedNode) stop() {
	if err := n.node.Stop(); err != nil {
		n.t.Error(err)
	}
	n.coordinator.Close()
	os.RemoveAll(n.dir)
}

// plugin is a plugin that asks the coordinator, in the same process.
func (n *judgedNode) plugin(resource string) node.Plugin {
	return node.Plugin{
		Name: resource,
		Prefer: func(ctx context.Context, available, required []string, size int) ([]string, error) {
			ids, _, err := n.coordinator.Prefer(ctx, &api.PreferRequest{
				Resource: resource, Available: available, MustInclude: required, Size: uint32(size),
			})
			return ids, err
		},
		Take: func(ctx context.Context, ids []string) error {
			taken, err := n.coordinator.Allocated(ctx, resource, ids)
			_ = n.coordinator.Returned(ctx, resource, ids, taken.GetRefusal() != "")
			if err == nil && taken.GetRefusal() != "" {
				err = errors.New(taken.GetRefusal())
			}
			return err
		},
	}
}

// announce tells kubelet and coordinator of a resource's devices.
func (n *judgedNode) announce(o *published.Resource) {
	must(n.t, n.coordinator.Announce(o.Name, o.Kind, device.Announcement{Devices: o.Devices, Links: o.Links}))
	n.node.Announce(o.Name, o.Devices)
}

// sicken makes some devices ill and all others well.
func (n *judgedNode) sicken() {
	for i := range n.world.offered {
		o := &n.world.offered[i]
		ill := n.random.IntN(2) * n.random.IntN(4)
		for k := range o.Devices {
			o.Devices[k].Healthy = true
		}
		for range ill {
			o.Devices[n.random.IntN(len(o.Devices))].Healthy = false
		}
		n.announce(o)
	}
}

// published returns what the node would publish.
func (n *judgedNode) published() *v1alpha1.NodeTopology {
	f := publish.Facts{
		Tree: n.world.tree, Resources: published.Announce(n.world.offered...),
		Spec: v1alpha1.Spec{Kubelet: n.world.kubelet},
	}
	for _, numa := range n.world.numa {
		f.NUMANodes = append(f.NUMANodes, numa.Describe())
	}
	n.managed(&f)
	return &v1alpha1.NodeTopology{Spec: publish.BuildSpec(f, n.node.Held(n.admitted))}
}

// admit has the kubelet admit a pod.
func (n *judgedNode) admit(pod *v1.Pod) error {
	n.pending = pod
	err := n.node.Admit(pod)
	n.pending = nil
	if err != nil {
		must(n.t, n.node.Remove(pod))
	}
	return err
}

// Refresh reads nothing: the machine does not change.
func (n *judgedNode) Refresh(device.Announcement) error { return nil }

// Newest returns the tree of the machine.
func (n *judgedNode) Newest() *topology.Tree { return n.world.tree }

// Life does not identify the kubelet.
func (n *judgedNode) Life() string { return "" }

// Checkpoint reads the kubelet's checkpoint.
func (n *judgedNode) Checkpoint() (kubelet.Checkpoint, error) { return kubelet.ReadCheckpoint(n.dir) }

// Granted returns no containers: none has a pairs file.
func (n *judgedNode) Granted() ([]kubelet.Granted, error) { return nil, nil }

// CPUs returns the CPUs of the kubelet and of the machine.
func (n *judgedNode) CPUs(context.Context) (topology.CPUSet, map[int]topology.CPUSet, error) {
	return setOf(n.node.AllocatableCPUs()), n.world.nodeCPUs(), nil
}

// TopologyManager is not read: every device has a NUMA node, or the documented rule is right.
func (n *judgedNode) TopologyManager() (none model.TopologyManager, err error) {
	return none, kubelet.ErrNotRead
}

// List returns the pods as PodResources does.
func (n *judgedNode) List(context.Context) (kubelet.View, error) {
	return n.view(n.pods()), nil
}

// Get returns a pod as PodResources does.
func (n *judgedNode) Get(_ context.Context, name kubelet.Pod) (kubelet.View, error) {
	for _, pod := range n.pods() {
		if pod.Name == name.Name {
			return n.view([]*v1.Pod{pod}), nil
		}
	}
	return kubelet.View{}, nil
}

// pods returns the pods that have not ended, the one in admission too.
func (n *judgedNode) pods() []*v1.Pod {
	if n.pending == nil {
		return n.admitted
	}
	return append(slices.Clone(n.admitted), n.pending)
}

func (n *judgedNode) view(pods []*v1.Pod) kubelet.View {
	view := kubelet.View{
		Containers: map[kubelet.Container]kubelet.Devices{}, Exclusive: topology.CPUSet{},
	}
	for _, pod := range pods {
		name := kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name}
		view.Pods = append(view.Pods, name)
		for i, c := range node.Containers(pod) {
			if i < len(pod.Spec.InitContainers) && c.RestartPolicy == nil {
				continue
			}
			if devices := n.node.Devices(pod, c.Name); len(devices) > 0 {
				view.Containers[kubelet.Container{Pod: name, Name: c.Name}] = devices
			}
			maps.Copy(view.Exclusive, setOf(n.node.ExclusiveCPUs(pod, c.Name)))
		}
	}
	return view
}

// Pods returns the requests of the pods.
func (n *judgedNode) Pods(context.Context) (intent.Answer, error) {
	answer := intent.Answer{Source: intent.PodsAPI}
	for _, pod := range n.pods() {
		answer.Pods = append(answer.Pods, told(pod, pod != n.pending))
	}
	return answer, nil
}

// told is a pod as a source of requests tells it.
func told(pod *v1.Pod, started bool) intent.Pod {
	p := intent.Pod{
		Pod: kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name}, UID: string(pod.UID), Started: started,
		Created: pod.CreationTimestamp.Time, Alignment: intent.Alignment(pod.Annotations[intent.AlignmentKey]),
	}
	for i, c := range node.Containers(pod) {
		role := model.App
		if i < len(pod.Spec.InitContainers) {
			role = model.Init
			if c.RestartPolicy != nil {
				role = model.Sidecar
			}
		}
		wish := node.Requests(&c)
		maps.DeleteFunc(wish, func(_ string, count int) bool { return count == 0 })
		p.Containers = append(p.Containers, intent.Container{
			Name: c.Name, Role: role, Requests: wish, CPUs: ownCPUs(pod, &c),
		})
	}
	return p
}

// free is how many healthy devices nobody has.
func (n *judgedNode) free(o *published.Resource) int {
	taken := map[string]bool{}
	for _, devices := range n.node.Held(n.admitted) {
		for _, id := range devices[o.Name] {
			taken[id] = true
		}
	}
	free := 0
	for _, d := range o.Devices {
		if d.Healthy && !taken[d.ID] {
			free++
		}
	}
	return free
}

// fullness is the share that is taken of the scarcest of all: devices of a resource, CPUs, memory.
func (n *judgedNode) fullness() float64 {
	full := n.crowding()
	for i := range n.world.offered {
		o := &n.world.offered[i]
		full = max(full, 1-float64(n.free(o))/float64(len(o.Devices)))
	}
	return full
}
