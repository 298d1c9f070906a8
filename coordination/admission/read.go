package admission

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/survive"
	"github.com/tandem-k8s/tandem/topology"
)

// seen is what the kubelet and the sources of intent know when it asks.
type seen struct {
	checkpoint    kubelet.Checkpoint
	checkpointErr error
	view          *kubelet.View  // nil where PodResources could not be read, or not safely
	single        []kubelet.Pod  // the pods that the view is of, where they were asked about one by one
	answer        *intent.Answer // nil where no source tells
	cpus          *cpus          // nil where they do not matter, or are not known
	policy        hints.Policy   // "" where it does not matter, or is not known
}

// list is the view where it is of all pods; else nil.
func (s seen) list() *kubelet.View {
	if s.single != nil {
		return nil
	}
	return s.view
}

// sources are those by which is found who holds what.
func (s seen) sources(before *state, q asking.Question) holders.Sources {
	sources := holders.Sources{
		View: s.view, Single: s.single, Pods: podsOf(s.answer), Known: before.known,
		Before: before.found, Looked: before.seen.Looked, Life: before.seen.Life, Allocates: before.allocates,
	}
	if r := before.resources[q.Resource]; r != nil {
		sources.Asked = q.Offer(r)
	}
	if s.checkpointErr == nil {
		sources.Recorded = &s.checkpoint
	}
	return sources
}

// podsOf are the pods that a source tells; nil where none does.
func podsOf(answer *intent.Answer) *holders.Pods {
	if answer == nil {
		return nil
	}
	pods := &holders.Pods{Names: map[string]kubelet.Pod{}, All: answer.Source != intent.APIServer}
	for _, pod := range answer.Pods {
		pods.Names[pod.UID] = pod.Pod
	}
	return pods
}

// read reads what a question needs.
func (c *Coordinator) read(ctx context.Context, s *state, asked time.Time, q asking.Question) seen {
	if now, enough := c.glance(s, asked, q); enough {
		return now
	}
	return c.lookFor(ctx, s, q)
}

// glance reads the kubelet's checkpoint alone, and reports whether that is enough to answer a question: it is
// the one that the plan is kept for, and the checkpoint proves that the kubelet is not done with the
// container that got the newest Allocate.
//
// A look at PodResources and the sources of intent would tell nothing then that decides:
//
//   - Who asks: the container that got the newest Allocate, of the one pod that the look at its first half
//     left. Had the kubelet given it up, after an error of the other plugin's, the next pod would not ask
//     that soon, for just what is planned.
//   - What is free: the kubelet offers nothing that somebody held when the first half was asked for. Where it
//     does, something became free or it hands a device out twice, and PodResources tells which.
//   - What else the container wants: nothing is left but what is asked for.
//
// What a look leaves behind for later questions is the same too: the kubelet takes no pod in while it admits
// one.
func (c *Coordinator) glance(s *state, asked time.Time, q asking.Question) (now seen, enough bool) {
	if !s.foresees(q, asked) {
		return now, false
	}
	now.checkpoint, now.checkpointErr = c.Recorded()
	return now, s.given.progress(now.checkpoint, now.checkpointErr) == asking.Open
}

// lookFor reads everything, what the pods want beside the rest; the kubelet's checkpoint takes no time to
// speak of. PodResources is read where that is safe: not while devices of this very container may be in
// flight.
func (c *Coordinator) lookFor(ctx context.Context, before *state, q asking.Question) (s seen) {
	ctx, cancel := context.WithTimeout(ctx, bounded.Look)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		_ = survive.Do(c.Log, func() error { s.answer = c.askedFor(ctx); return nil }) // do without it
	})
	s.checkpoint, s.checkpointErr = c.Recorded()
	mayLook := len(q.MustInclude) == 0 && c.Look != nil
	if mayLook {
		s.view = c.holdings(ctx)
	}
	if c.Policy != nil && len(before.resources.Nodes(q.Resource, q.Available)) == 0 {
		s.policy = c.Policy()
	}
	all.Wait()
	if s.view == nil && (s.answer == nil || s.answer.Source == intent.APIServer) {
		s.view, s.single = c.single(ctx, before.suspected(s.sources(before, asking.Question{}), q, mayLook))
	}
	s.cpus = c.cpusFor(ctx, before, q, s)
	return s
}

// suspected lists the few pods to ask the kubelet about where it does not list all: first those of which it
// offers a device, which have ended unless it hands that out twice; and others too, where it was to list
// them.
func (s *state) suspected(sources holders.Sources, q asking.Question, others bool) (pods []kubelet.Pod) {
	found, _ := holders.Find(sources)
	if sources.Recorded == nil {
		found = s.found
	}
	var rest []kubelet.Pod
	add := func(to []kubelet.Pod, more ...kubelet.Pod) []kubelet.Pod {
		for _, pod := range more {
			if pod != (kubelet.Pod{}) && !slices.Contains(pods, pod) && !slices.Contains(to, pod) {
				to = append(to, pod)
			}
		}
		return to
	}
	for _, h := range found {
		of := []kubelet.Pod{h.Pod}
		if n := s.given.container; h.Pod == (kubelet.Pod{}) && n != nil && n.HasAny(h.Devices) {
			of = n.Pods
		}
		offered := func(id string) bool {
			return slices.Contains(q.Available, id) && !slices.Contains(q.MustInclude, id)
		}
		if slices.ContainsFunc(h.Devices[q.Resource], offered) {
			pods = add(pods, of...)
		} else if others {
			rest = add(rest, of...)
		}
	}
	slices.SortFunc(rest, func(a, b kubelet.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	pods = add(pods, rest...)
	return pods[:min(len(pods), endedBurst)]
}

// askedFor is what the pods of the node ask for, nil where no source tells before ctx is done.
func (c *Coordinator) askedFor(ctx context.Context) *intent.Answer {
	if c.Pods == nil {
		return nil
	}
	if answer, ok := c.Pods(ctx); ok {
		return &answer
	}
	return nil
}

// holdings is what PodResources shows, nil where it does not answer before ctx is done, or must not be asked.
func (c *Coordinator) holdings(ctx context.Context) *kubelet.View {
	if !c.inFlight.Settle(ctx) {
		c.Log.Warn("choose without PodResources: another container is being given devices at this moment")
		return nil
	}
	view, err := c.Look(ctx)
	if err != nil {
		c.Log.Warn("choose without PodResources: who holds what may be out of date", "error", err)
		return nil
	}
	return &view
}

// cpus are the node's as the kubelet's static CPU policy sees them: those of every NUMA node and, of those
// that it can give to a container alone, those that nobody has.
type cpus struct {
	nodes map[int]topology.CPUSet
	free  topology.CPUSet
}

// cpusFor reads what is known of CPUs where it can matter: the devices that are offered do not tell the NUMA
// nodes, and a pod that may be asking wants CPUs of its own. The kubelet gives a container its devices before
// its CPUs, but decides on the nodes by both.
func (c *Coordinator) cpusFor(ctx context.Context, s *state, q asking.Question, now seen) *cpus {
	if c.AllocatableCPUs == nil || now.list() == nil || now.answer == nil || !wantsCPUs(now.answer.Pods) ||
		len(s.resources.Nodes(q.Resource, q.Available)) > 0 {
		return nil
	}
	allocatable, err := c.AllocatableCPUs(ctx)
	switch {
	case err != nil:
		c.Log.Warn("choose without knowing where CPUs are free", "error", err)
		return nil
	case len(allocatable) == 0: // the policy is not static
		return nil
	}
	return &cpus{c.NodeCPUs(), allocatable.Without(now.view.Exclusive)}
}

func wantsCPUs(pods []intent.Pod) bool {
	for _, pod := range pods {
		for _, container := range pod.Containers {
			if !pod.Started && container.CPUs > 0 {
				return true
			}
		}
	}
	return false
}
