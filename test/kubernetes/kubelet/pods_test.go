// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// want is what a container asks for.
type want struct{ gpus, vfs int }

func (w want) container(name, gpu string) v1.Container {
	devices := map[string]int{}
	if w.gpus > 0 {
		devices[gpu] = w.gpus
	}
	if w.vfs > 0 {
		devices[rig.VF] = w.vfs
	}
	return node.Container(name, devices)
}

// shape is a kind of pod: its init containers and its containers.
type shape struct{ init, app []want }

func (s shape) pod(name, gpu string) *v1.Pod {
	var init, app []v1.Container
	for i, w := range s.init {
		init = append(init, w.container(fmt.Sprint("init-", i), gpu))
	}
	for i, w := range s.app {
		app = append(app, w.container(fmt.Sprint("app-", i), gpu))
	}
	return node.Pod(name, init, app)
}

// needs is what the pod takes at most: containers take what init containers leave.
func (s shape) needs() want {
	var init, app want
	for _, w := range s.init {
		init = want{max(init.gpus, w.gpus), max(init.vfs, w.vfs)}
	}
	for _, w := range s.app {
		app = want{app.gpus + w.gpus, app.vfs + w.vfs}
	}
	return want{max(init.gpus, app.gpus), max(init.vfs, app.vfs)}
}

// shapes are the pods of the mixed load; a shape that stands twice comes twice as often. An init container
// that has more than the containers after it is left out: which of its devices they get is the kubelet's
// choice alone.
var shapes = []shape{
	{app: []want{{1, 1}}}, {app: []want{{1, 1}}},
	{app: []want{{2, 2}}}, {app: []want{{2, 2}}},
	{app: []want{{4, 4}}},
	{app: []want{{1, 0}}},
	{app: []want{{2, 0}}},
	{app: []want{{0, 1}}},
	{app: []want{{0, 2}}},
	{app: []want{{0, 0}}},
	{init: []want{{1, 1}}, app: []want{{1, 1}}},
	{init: []want{{1, 1}}, app: []want{{2, 2}}},
	{app: []want{{1, 1}, {1, 1}}},
	{app: []want{{1, 1}, {2, 2}}},
	{app: []want{{1, 0}, {1, 1}}}, // whose VFs, when they are asked first?
	{app: []want{{0, 2}, {2, 2}}},
	{app: []want{{1, 1}, {0, 1}}},
	{app: []want{{2, 2}, {1, 0}}},
	{app: []want{{0, 0}, {1, 1}}},
}

// randomPod is a pod for which the node has enough free devices, as the scheduler sees to. It knows nothing
// of NUMA nodes.
func (l *load) randomPod(name string) *v1.Pod {
	for {
		s := shapes[l.random.IntN(len(shapes))]
		if l.VFs() == 0 {
			s = s.withoutVFs()
		}
		if need := s.needs(); need.gpus <= l.Free(l.GPU) && need.vfs <= l.Free(rig.VF) {
			return s.pod(name, l.GPU)
		}
	}
}

func (s shape) withoutVFs() shape {
	var without shape
	for _, w := range s.init {
		without.init = append(without.init, want{gpus: w.gpus})
	}
	for _, w := range s.app {
		without.app = append(without.app, want{gpus: w.gpus})
	}
	return without
}
