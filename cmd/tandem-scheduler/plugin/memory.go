// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// memory caches the results for a version of an object and a generation of the NodeInfo: for the other pods
// of a job, and for nodes that received no pod.
type memory struct {
	mu         sync.Mutex
	generation int64
	seen       *observation // nil before the first request
}

// observation is a node with the pods of a NodeInfo.
type observation struct {
	node     *verdict.Node
	held     *verdict.State // holdings of pods in the object
	inFlight []*v1.Pod      // pods without holdings, in the order of the NodeInfo
	after    *verdict.State // after the admission of inFlight
	gone     []types.UID    // pods that hold devices only in the object
	since    []step         // steps since the object was written; nil until needed
	room     *rank.Room     // nil until needed
	answers  map[request]*answer
}

type answer struct {
	verdict verdict.Verdict
	offer   *rank.Offer // nil until needed
}

// verdict returns the kubelet's verdict on a pod, a function of the arguments and the object alone.
func (o *published) verdict(info fwk.NodeInfo, pod *v1.Pod, wish request) verdict.Verdict {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	return o.seen(info).answer(pod, wish).verdict
}

// offer returns the node's offer for a pod that its kubelet admits.
func (o *published) offer(info fwk.NodeInfo, pod *v1.Pod, wish request) rank.Offer {
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	s := o.seen(info)
	a := s.answer(pod, wish)
	if a.offer == nil {
		a.offer = new(o.make(s, pod, wish))
	}
	return *a.offer
}

// seen returns the cached results of the node's current generation. Must be called with the lock held.
func (o *published) seen(info fwk.NodeInfo) *observation {
	if generation := info.GetGeneration(); o.memory.seen == nil || o.memory.generation != generation {
		o.memory.seen, o.memory.generation = o.look(info.GetPods()), generation
	}
	return o.memory.seen
}

// look subtracts the holdings of deleted pods, and admits the pods without holdings.
func (o *published) look(pods []fwk.PodInfo) *observation {
	present := sets.New[types.UID]()
	for _, p := range pods {
		present.Insert(kubeletUID(p.GetPod()))
	}
	s := &observation{node: o.node, answers: map[request]*answer{}}
	s.held = o.node.State(func(uid types.UID) bool {
		if !present.Has(uid) {
			s.gone = append(s.gone, uid)
		}
		return present.Has(uid)
	})
	s.after = s.held.Clone()
	for _, p := range pods {
		if pod := p.GetPod(); !s.held.Holds(kubeletUID(pod)) && o.node.Concerns(pod) {
			s.inFlight = append(s.inFlight, pod)
		}
	}
	for _, pod := range byCreation(s.inFlight) {
		s.after.Admit(pod)
	}
	return s
}

// before returns the holdings of the object, those of deleted pods included.
func (s *observation) before() *verdict.State {
	if len(s.gone) == 0 {
		return s.held
	}
	return s.node.State(func(types.UID) bool { return true })
}

// maxAnswers limits the cached pod requests per node.
const maxAnswers = 64

func (s *observation) answer(pod *v1.Pod, wish request) *answer {
	a := s.answers[wish]
	if a == nil {
		if len(s.answers) >= maxAnswers {
			clear(s.answers)
		}
		a = &answer{verdict: s.ask(pod)}
		s.answers[wish] = a
	}
	return a
}

// make admits the pod last and rates the remaining devices, unless an equal node's offer is cached.
func (o *published) make(s *observation, pod *v1.Pod, wish request) rank.Offer {
	taken := s.after.Same()
	if taken == "" { // nobody can tell whether another node is equal
		return s.offer(pod)
	}
	q := question{o.kind, sha256.Sum256([]byte(taken)), wish}
	offer, known := o.offers.find(q)
	if !known {
		offer = s.offer(pod)
		o.offers.remember(q, offer)
	}
	return offer
}

func (s *observation) offer(pod *v1.Pod) rank.Offer {
	if s.room == nil {
		s.room = new(s.after.Room())
	}
	then := s.after.Clone()
	offer := rank.Offer{Pairs: then.Admit(pod).Pairs, Lost: *s.room}
	offer.Stranded, offer.Free = then.Stranded(), then.Free()
	for i, left := range then.Room() {
		offer.Lost[i] -= left
	}
	return offer
}
