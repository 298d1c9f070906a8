// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// board has the NodeTopology object of the node, as in the API server. It implements publish.Sink.
type board struct {
	mu       sync.Mutex
	spec     *v1alpha1.Spec // nil before the first write
	watchers map[chan<- publish.Change]bool
}

// Name returns the name of the target.
func (*board) Name() string { return "node-topology" }

// Write replaces the object, unless the assignments of pods are unknown.
func (b *board) Write(_ context.Context, f publish.Facts) (bool, error) {
	if f.Unread != nil {
		return false, f.Unread
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spec = &f.Spec
	return true, nil
}

// Forget does nothing: each Write replaces the object.
func (*board) Forget() {}

// watch forwards changes of the kubelet's folder until ctx is done.
func (b *board) watch(ctx context.Context, changed chan<- publish.Change) {
	b.mu.Lock()
	b.watchers[changed] = true
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watchers, changed)
}

// touch reports a change of the kubelet's folder.
func (b *board) touch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for changed := range b.watchers {
		select {
		case changed <- publish.Written:
		default:
		}
	}
}

// read returns a copy of the object, nil before the first write.
func (b *board) read() *v1alpha1.NodeTopology {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spec == nil {
		return nil
	}
	return &v1alpha1.NodeTopology{Spec: *b.spec.DeepCopy()}
}

// publisher returns the publisher of a process.
func (p *process) publisher() (coordination.Publisher, error) {
	n := p.node
	return publish.New(publish.Config{
		Sys: n.hardware, KubeletDir: n.kubeletDir(), Configz: n.configz, Pods: n.records.each,
		Sinks: []publish.Sink{&n.board}, Watch: n.board.watch, Published: func(string, error) {}, Log: p.log,
	})
}

// configz returns the answer of the kubelet's /configz.
func (n *Node) configz(context.Context) ([]byte, error) {
	policy, scope := n.options.manager()
	return json.Marshal(map[string]any{"kubeletconfig": v1alpha1.Kubelet{
		TopologyManagerPolicy: policy, TopologyManagerScope: scope, CPUManagerPolicy: "none",
		MemoryManagerPolicy: "None",
	}})
}

// publication is the time from a change to the published object.
const publication = publish.Coalesce + publish.Jitter + 100*time.Millisecond

// foretell returns the scheduler's verdict on a pod, from the published object.
func (s *Simulation) foretell(p *model.Pod) (*verdict.Verdict, error) {
	for before := -1; before != s.updates; { // the kubelet and the object have the same lists
		before = s.updates
		s.board.touch()
		seeds.Sleep(publication)
		if err := s.sync(); err != nil {
			return nil, err
		}
	}
	published := s.board.read()
	if published == nil {
		s.wrong(otherVerdict, "no NodeTopology is published")
		return nil, nil
	}
	node, err := verdict.New(published, nil)
	if err != nil {
		return nil, fmt.Errorf("read the published node: %w", err)
	}
	present := map[types.UID]bool{}
	for _, living := range s.kubelet.Pods() {
		present[types.UID(living.UID)] = true
	}
	pod := specOf(p)
	told := node.State(func(uid types.UID) bool { return present[uid] }).Admit(&pod)
	return &told, nil
}

// specOf returns a pod as in the API server before its admission.
func specOf(p *model.Pod) corev1.Pod {
	described := p.Describe()
	pod := describe(&described)
	pod.UID = "not admitted yet"
	return pod
}

// pairsOnSwitches returns the number of a container's pairs that are on one switch each, without devices that
// occur in several pairs.
func (s *Simulation) pairsOnSwitches(c *model.Container) (pairs int) {
	tree := s.hardware.Present()
	counts := map[string]map[string]int{model.GPUs: {}, model.VFs: {}}
	for resource, on := range counts {
		for _, address := range s.addresses(resource, c.Devices[resource]) {
			on[tree.Switch(address)]++
		}
	}
	for name, gpus := range counts[model.GPUs] {
		pairs += min(gpus, counts[model.VFs][name])
	}
	return pairs
}

// checkVerdict: in a calm the scheduler's verdict on a pod is the kubelet's.
func (s *Simulation) checkVerdict(p *model.Pod, told *verdict.Verdict, admitted error) {
	if told == nil || told.Chance || len(s.unrecorded()) > 0 {
		return // a kubelet that has lost its records chooses NUMA nodes by devices that it takes for free
	}
	if told.Required && s.options.Source == "" {
		return // the scheduler reads the annotation, and without a source the coordinator does not
	}
	if s.options.Required && s.options.Source == "" {
		return // pairs without a source are inferred
	}
	policy, _ := s.options.manager()
	if p.Alignment == intent.Required && policy == topologymanager.BestEffort {
		return // which resource the kubelet takes first is chance, and decides
	}
	if told.Admitted != (admitted == nil) {
		s.wrong(otherVerdict, "%v: told %+v, the kubelet: %v", p, *told, admitted)
		return
	}
	if admitted != nil || s.options.Source == "" || policy == topologymanager.None ||
		policy == topologymanager.BestEffort {
		return
	}
	pairs := 0
	for _, c := range p.Containers {
		pairs += s.pairsOnSwitches(c)
	}
	if pairs != told.Pairs {
		s.wrong(otherVerdict, "%v: told %d pairs on one switch, got %d", p, told.Pairs, pairs)
	}
}
