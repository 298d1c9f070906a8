// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"container/heap"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// event is the end of a pod, or the creation of a pod in place of a refused one.
type event struct {
	at        float64
	pod       *pod
	ends      *node // node of the ended pod; nil for a new pod
	container world.Container
}

// events are the pending events.
type events struct{ list eventHeap }

func (e *events) add(one event) { heap.Push(&e.list, one) }

// next removes and returns the first event, if it is not after until.
func (e *events) next(until float64) (event, bool) {
	if len(e.list) == 0 || e.list[0].at > until {
		return event{}, false
	}
	return heap.Pop(&e.list).(event), true
}

// eventHeap implements heap.Interface: the first to come is on top.
type eventHeap []event

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h eventHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)        { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
