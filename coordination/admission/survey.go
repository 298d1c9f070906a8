// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
)

const (
	// lifetime of a survey for metrics, which any process can request
	surveyTTL = 5 * time.Second
	// for reading all pods of a survey
	surveyTimeout = time.Second
)

// inspector answers people, by the committed state and the kubelet's records. An inspector changes no state.
type inspector struct {
	reader    *reader
	committed *committedState
	cache     surveyCache
}

// surveyCache has the latest survey, which several callers may await. The next decision makes the survey
// stale. The mutex is not held while the kubelet is read.
type surveyCache struct {
	mu     sync.Mutex
	latest *flight
}

// flight is a survey in progress or done.
type flight struct {
	of     *state
	at     time.Time // of the start
	done   chan struct{}
	result survey // after done
}

// isUsable reports whether a flight is a survey of a state and still in progress, or younger than a lifetime.
func (f *flight) isUsable(of *state, now time.Time, lifetime time.Duration) bool {
	if f == nil || f.of != of {
		return false
	}
	select {
	case <-f.done:
		return now.Sub(f.at) < lifetime
	default:
		return true
	}
}

// survey is the holders of devices, ended pods included. The kubelet frees the devices of ended pods at its
// next allocation; people see them as free.
type survey struct {
	found holders.Holders
	ended map[string]bool // by key
}

// podKeyOf returns a key for the pod of a holder.
func podKeyOf(h *holders.Holder) string { return h.UID + " " + h.Pod.Namespace + "/" + h.Pod.Name }

// livingHolders returns the holders whose pods have not ended.
func (s survey) livingHolders() holders.Holders {
	return slices.DeleteFunc(slices.Clone(s.found), func(h holders.Holder) bool { return s.ended[podKeyOf(&h)] })
}

// cachedSurvey returns the latest survey if of the current state and younger than a lifetime, else a new one.
// If ctx is done first, the survey has only the holders of the last decision.
func (i *inspector) cachedSurvey(ctx context.Context, lifetime time.Duration) survey {
	f := i.startSurvey(ctx, lifetime)
	select {
	case <-f.done:
		return f.result
	case <-ctx.Done():
		return survey{found: f.of.found}
	}
}

// startSurvey returns a usable flight, and starts one if there is none. The flight does not end with its
// first caller.
func (i *inspector) startSurvey(ctx context.Context, lifetime time.Duration) *flight {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	of, now := i.committed.current(), i.committed.now()
	if i.cache.latest.isUsable(of, now, lifetime) {
		return i.cache.latest
	}
	f := &flight{of: of, at: now, done: make(chan struct{}), result: survey{found: of.found}}
	i.cache.latest = f
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(f.done)
		ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
		defer cancel()
		_ = system.Survive(i.reader.Log, func() error { // the holders of the last decision after a panic
			f.result = i.newSurvey(ctx, of)
			return nil
		})
	}()
	return f
}

// newSurvey finds the holders, after the last decision, by sources that are safe to read at any time, without
// PodResources List.
func (i *inspector) newSurvey(ctx context.Context, s *state) (known survey) {
	life := i.reader.Kubelet.Life()
	answer, unknown := i.reader.Pods.Pods(ctx)
	known.found = s.found
	pods := PodsOf(answer)
	sources := holders.Sources{
		Known: s.known, Before: s.found, Unlisted: s.unlisted, Allocates: s.allocates,
		Pods: kubelet.Read(pods, unknown), Life: life, Ended: true,
	}
	if n := s.open.allocated(); n != nil && unknown != nil { // the checkpoint has only the UID of the latest pod
		possible := n.Pods[:min(len(n.Pods), maxSuspects)]
		if n.Owner != nil {
			possible = []kubelet.Pod{n.Owner.Pod}
		}
		sources.View, sources.Single = i.reader.readPods(ctx, possible)
	}
	sources.Checkpoint = kubelet.Read(i.reader.Kubelet.Checkpoint())
	if sources.Checkpoint.IsKnown() {
		known.found = holders.Find(sources).Holders
	}
	known.markInit(answer)
	if unknown == nil {
		known.ended = known.missingIn(pods, sources)
	} else {
		known.ended = i.endedPods(ctx, known.found, sources.View, sources.Single)
	}
	return known
}

// markInit marks the init containers among the holders, by the answer of a request source.
func (s *survey) markInit(answer intent.Answer) {
	init := map[string]bool{}
	for _, pod := range answer.Pods {
		for _, c := range pod.Containers {
			init[pod.UID+"/"+c.Name] = c.Role == model.Init
		}
	}
	s.found = slices.Clone(s.found)
	for i, h := range s.found {
		s.found[i].Init = h.Init || init[h.UID+"/"+h.Name]
	}
}

// missingIn returns the pods of holders, by key, and whether their absence from a list of pods means their
// end.
func (s *survey) missingIn(pods holders.Pods, sources holders.Sources) map[string]bool {
	named := map[kubelet.Pod]bool{}
	for _, pod := range pods.Names {
		named[pod] = true
	}
	gone := map[string]bool{}
	for i := range s.found {
		h := &s.found[i]
		gone[podKeyOf(h)] = h.UID != "" && pods.Lack(h.UID, sources.Life, sources.Known[h.UID]) ||
			h.UID == "" && h.Pod != (kubelet.Pod{}) && pods.All && !named[h.Pod]
	}
	return gone
}

// endedPods returns the ended pods of holders, by key. The kubelet is read pod by pod, at a limited rate: an
// ended pod is missing, or lacks the devices of a container besides plain init containers. Single are the
// pods read just before, with their view.
func (i *inspector) endedPods(
	ctx context.Context, found holders.Holders, view kubelet.Reading[kubelet.View], single []kubelet.Pod,
) map[string]bool {
	gone, asked := map[string]bool{}, []kubelet.Pod{}
	for _, h := range found {
		if h.Pod != (kubelet.Pod{}) && !slices.Contains(asked, h.Pod) && !slices.Contains(single, h.Pod) {
			asked = append(asked, h.Pod)
		}
	}
	read, told := i.reader.readPods(ctx, asked)
	for n := range found {
		h, of := &found[n], view
		switch {
		case slices.Contains(told, h.Pod):
			of = read
		case !slices.Contains(single, h.Pod):
			continue
		}
		pods, err := of.Get()
		if err != nil {
			continue
		}
		gone[podKeyOf(h)] = gone[podKeyOf(h)] || !slices.Contains(pods.Pods, h.Pod) || h.IsShownWithout(pods)
	}
	return gone
}
