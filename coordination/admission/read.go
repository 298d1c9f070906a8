// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Parts of a question's and an Allocate's system.CoordinatorLimit.
const (
	// announcedLimit is for an announcement, if the kubelet already asks for the announced devices.
	announcedLimit = system.CoordinatorLimit - readLimit
	// readLimit is for all reads together, which usually take a millisecond.
	readLimit = system.QuestionLimit / 2
	// returnedLimit is the part of readLimit for the report that an open Allocate has returned.
	returnedLimit = readLimit / 5
)

// reader reads the kubelet and the request sources. A reader changes no state and holds no lock.
type reader struct {
	*Config
	allocates *Allocates
}

// readQuestion reads the input of a decision about a question: the request sources beside the kubelet's
// records. PodResources is read only if safe: mayList is false while devices of this container may be in
// flight, and readList waits for the end of open Allocates.
func (r *reader) readQuestion(
	ctx context.Context, before *state, asked time.Time, q *api.PreferRequest, mayList bool,
) (o observation) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	o.asked, o.life = asked, r.Kubelet.Life()
	var all sync.WaitGroup
	all.Go(func() {
		_ = system.Survive(r.Log, func() error { // not read after a panic
			o.pods = kubelet.Read(r.Pods.Pods(ctx))
			return nil
		})
	})
	o.checkpoint = kubelet.Read(r.Kubelet.Checkpoint())
	if mayList {
		o.view = kubelet.Read(r.readList(ctx))
	}
	if len(before.resources.Nodes(q.GetResource(), q.GetAvailable())) == 0 {
		o.manager = kubelet.Read(r.Kubelet.TopologyManager())
	}
	all.Wait()
	if !o.view.IsKnown() && !o.pods.IsKnown() {
		o.view, o.single = r.readPods(ctx, before.suspectedPods(o.sources(before, nil), q, mayList))
	}
	o.cpus = r.readCPUs(ctx, before, q, &o)
	if r.Kubelet.Life() != o.life { // a kubelet has started meanwhile
		o.life = ""
	}
	return o
}

// suspectedPods returns the few pods to read one by one if List is unavailable. Pods whose devices the
// kubelet offers come first: they have ended, unless the kubelet hands a device out twice. If a List was due
// (all), further pods follow.
func (s *state) suspectedPods(sources holders.Sources, q *api.PreferRequest, all bool) (pods []kubelet.Pod) {
	found := holders.Find(sources).Holders
	if !sources.Checkpoint.IsKnown() {
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
		if n := s.open.allocated(); h.Pod == (kubelet.Pod{}) && n != nil && n.Devices.HasAny(h.Devices) {
			of = n.Pods
		}
		offered := func(id string) bool {
			return slices.Contains(q.GetAvailable(), id) && !slices.Contains(q.GetMustInclude(), id)
		}
		if slices.ContainsFunc(h.Devices[q.GetResource()], offered) {
			pods = add(pods, of...)
		} else if all {
			rest = add(rest, of...)
		}
	}
	slices.SortFunc(rest, func(a, b kubelet.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	pods = add(pods, rest...)
	return pods[:min(len(pods), getBurst)]
}

// readList returns the answer of PodResources List, unless a List is unsafe.
func (r *reader) readList(ctx context.Context) (kubelet.View, error) {
	if !r.allocates.awaitNone(ctx) {
		r.Log.Warn("PodResources not read during another container's allocation; choosing without PodResources")
		return kubelet.View{}, kubelet.ErrNotRead
	}
	view, err := r.Kubelet.List(ctx)
	if err != nil {
		r.Log.Warn("PodResources not read; holders of devices may be outdated", "error", err)
	}
	return view, err
}

// Limits of PodResources Get for several pods. The kubelet's limiter allows the same burst again for an
// admission.
const (
	getBurst = 5
	getPause = 20 * time.Millisecond
)

// readPods reads pods one by one, at a limited rate, with Get, which frees nothing. It also returns the pods
// that were read before ctx was done. Without such a pod the view is not read.
func (r *reader) readPods(
	ctx context.Context, pods []kubelet.Pod,
) (view kubelet.Reading[kubelet.View], found []kubelet.Pod) {
	all := kubelet.View{Containers: map[kubelet.Container]kubelet.Devices{}}
	for i, pod := range pods {
		if i >= getBurst {
			select {
			case <-time.After(getPause):
			case <-ctx.Done(): // Get then fails
			}
		}
		if view, err := r.Kubelet.Get(ctx, pod); err == nil {
			found = append(found, pod)
			all.Life = view.Life
			all.Pods = append(all.Pods, view.Pods...)
			maps.Copy(all.Containers, view.Containers)
		}
	}
	if found == nil {
		return view, nil
	}
	return kubelet.Read(all, nil), found
}

// readCPUs reads the CPUs if relevant: the offered devices have no NUMA nodes, and a possible asker requests
// exclusive CPUs. The kubelet allocates a container's devices before its CPUs, but chooses the nodes by both.
func (r *reader) readCPUs(
	ctx context.Context, s *state, q *api.PreferRequest, o *observation,
) (read kubelet.Reading[cpus]) {
	list, unlisted := o.list().Get()
	answer, unknown := o.pods.Get()
	if !r.MayList || unlisted != nil || unknown != nil || !requestCPUs(answer.Pods) ||
		len(s.resources.Nodes(q.GetResource(), q.GetAvailable())) > 0 {
		return read
	}
	exclusive, all, err := r.Kubelet.CPUs(ctx)
	if err == nil && len(exclusive) == 0 { // the policy is not static
		return read
	}
	if err != nil {
		r.Log.Warn("allocatable CPUs not read; choosing without free CPUs", "error", err)
	}
	return kubelet.Read(cpus{all, exclusive.Without(list.Exclusive)}, err)
}

// requestCPUs reports whether a pod not started requests exclusive CPUs.
func requestCPUs(pods []intent.Pod) bool {
	for _, pod := range pods {
		for _, container := range pod.Containers {
			if !pod.Started && container.CPUs > 0 {
				return true
			}
		}
	}
	return false
}

// fate is what the kubelet reports of the candidates for the pod of the open admission.
type fate int

const (
	noneGone fate = iota // all live, or nothing is known
	someGone             // some are gone: the kubelet may have rejected the container
	allGone              // all are gone
)

// allocateInput is the input of a decision about an Allocate.
type allocateInput struct {
	observation
	resource string
	ids      []string
	double   refusal // a different pod holds a device

	open *openAdmission // at the time of the read
	fate fate           // of its pod
}

// fateOf returns the fate of the pod of an open admission. Of a later admission nothing is known.
func (a allocateInput) fateOf(open *openAdmission) fate {
	if open == nil || a.open == nil || open.Container.ID != a.open.Container.ID {
		return noneGone
	}
	return a.fate
}

// readAllocate reads the input of a decision about an Allocate. The requests of the node's pods are read
// unless the open admission proves the recipient. Without requests the kubelet may have rejected the
// container of the open admission: the fate of its pod is read. PodResources List is never read here.
func (r *reader) readAllocate(
	ctx context.Context, s *state, now time.Time, resource string, ids []string,
) allocateInput {
	a := allocateInput{resource: resource, ids: ids, open: s.open}
	a.asked, a.life, a.checkpoint = now, r.Kubelet.Life(), kubelet.Read(r.Kubelet.Checkpoint())
	ctx, cancel := context.WithTimeout(ctx, readLimit) // for all reads together
	defer cancel()
	// a kubelet that hangs leaves half of the time for the request sources
	first, cancelFirst := context.WithTimeout(ctx, readLimit/2)
	defer cancelFirst()
	a.double = r.findConflict(first, s, now, resource, ids, &a.observation)
	if s.open.proves(resource, ids, now) {
		return a
	}
	if !a.pods.IsKnown() { // findConflict may have read it
		a.pods = kubelet.Read(r.Pods.Pods(ctx))
	}
	if !a.pods.IsKnown() && s.open != nil {
		a.fate = r.readFate(ctx, s.open.Container.Pods)
	}
	return a
}

// readFate returns the fate of a pod with several candidates.
func (r *reader) readFate(ctx context.Context, pods []kubelet.Pod) fate {
	gone := 0
	for _, pod := range pods[:min(len(pods), getBurst)] {
		if view, err := r.Kubelet.Get(ctx, pod); err == nil && len(view.Pods) == 0 {
			gone++
		}
	}
	switch gone {
	case 0:
		return noneGone
	case len(pods):
		return allGone
	default:
		return someGone
	}
}

// PodsOf returns the pods of the answer of a request source.
func PodsOf(answer intent.Answer) holders.Pods {
	pods := holders.OfKubelet()
	pods.All = answer.Source == intent.PodsAPI
	for _, pod := range answer.Pods {
		pods.Names[pod.UID], pods.Started[pod.UID] = pod.Pod, pod.Started
	}
	return *pods
}

// observation is the input of a decision, as read from the kubelet and the request sources.
type observation struct {
	asked      time.Time // time of the call
	checkpoint kubelet.Reading[kubelet.Checkpoint]
	life       string                                 // identifies the running kubelet; "" if unknown
	view       kubelet.Reading[kubelet.View]          // of PodResources
	single     []kubelet.Pod                          // the pods in view, if read pod by pod
	pods       kubelet.Reading[intent.Answer]         // of a request source
	cpus       kubelet.Reading[cpus]                  // not read if irrelevant
	manager    kubelet.Reading[model.TopologyManager] // not read if irrelevant
}

// recorded identifies the checkpoint; zero if unknown.
func (o *observation) recorded() kubelet.Identity {
	if checkpoint, err := o.checkpoint.Get(); err == nil {
		return checkpoint.Identity
	}
	return kubelet.Identity{}
}

// list returns the view if complete.
func (o *observation) list() (none kubelet.Reading[kubelet.View]) {
	if o.single != nil {
		return none
	}
	return o.view
}

// sources returns the input for package holders.
func (o *observation) sources(before *state, q *api.PreferRequest) holders.Sources {
	answer, err := o.pods.Get()
	sources := holders.Sources{
		View: o.view, Single: o.single, Pods: kubelet.Read(PodsOf(answer), err), Known: before.known,
		Before: before.found, Unlisted: before.unlisted, Allocates: before.allocates,
		Looked: before.listing.Read, ListedLife: before.listing.Life, Listed: before.listing.Containers,
		Life: o.life, Checkpoint: o.checkpoint,
	}
	if r := before.resources[q.GetResource()]; r != nil {
		sources.Question, sources.Withheld = q, withheldFrom(q, r)
	}
	return sources
}

// withheldFrom returns the devices of a resource that the kubelet does not offer in a question and would
// offer if they were free: healthy ones on the NUMA nodes of the offered devices.
func withheldFrom(q *api.PreferRequest, r *device.Resource) (withheld []string) {
	offered, nodes := map[string]bool{}, map[int]bool{}
	for _, id := range slices.Concat(q.GetAvailable(), q.GetMustInclude(), q.GetVanished()) {
		offered[id] = true
		if node, known := r.Device(id).NUMA.Number(); known {
			nodes[node] = true
		}
	}
	for _, d := range r.Ordered() {
		if node, known := d.NUMA.Number(); d.Healthy && !offered[d.ID] && (!known || nodes[node]) {
			withheld = append(withheld, d.ID)
		}
	}
	return withheld
}

// evidence returns the input for the identification of the asking container.
func (o *observation) evidence(s *state) *evidence {
	return &evidence{
		Resources: s.resources, Holders: s.found, Newest: s.open.allocated().ShownIn(o.list()),
		Checkpoint: o.checkpoint, Progress: s.open.progress(o.recorded()),
		Recent: s.open.isRecent(o.asked), Late: s.open.isLate(o.asked),
		View: o.list(), Pods: o.pods, Listing: s.listing,
	}
}
