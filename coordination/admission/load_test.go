// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/scale"
)

// setup is a machine with VFs.
type setup struct {
	machine         string
	vfsPerPF        int
	excludeTopology bool
}

func (s setup) name() string {
	return fmt.Sprintf("%s/%d/exclude=%v", s.machine, s.vfsPerPF, s.excludeTopology)
}

var setups = []setup{
	{"oci-mi300x-derived", 1, false},
	{"oci-mi300x-derived", 4, false},
	{"oci-mi300x-derived", 4, true},
	{"oci-mi300x-derived", 1, true},
	{"amd-mi300x-smc-thor2", 1, false},
	{"amd-mi250-16gcd-8nic", 2, false},
}

func TestEveryContainerGetsTheBestPairs(t *testing.T) {
	t.Attr("parity", "all/rpc-order")
	t.Attr("parity", "all/preferred-may-be-skipped")
	testBestPairs(t, "")
}

// With the request known, the first question is answered for all of the container: not only are the pairs the
// best, as many as possible are also left for others.
func TestWithIntentEveryChoiceIsTheBest(t *testing.T) {
	t.Attr("parity", "all/init-container-reuse")
	testBestPairs(t, intent.PodsAPI)
}

// testBestPairs admits and removes pods on all machines.
func testBestPairs(t *testing.T, source intent.Source) {
	t.Helper()
	for _, setup := range setups {
		t.Run(string(source)+"/"+setup.name(), func(t *testing.T) {
			for seed := range uint64(scale.Rounds(20)) {
				a := newAdmission(t, setup.machine, setup.vfsPerPF, setup.excludeTopology, seed)
				a.source = source
				if seed%2 == 0 {
					a.keepCheckpoint()
				}
				if a.away = source != "" && seed%3 == 0; source != "" && seed%4 == 3 {
					a.splitRails()
				}
				a.mixedLoad(200)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// Without a source and NUMA nodes the nodes of a container are predicted from the free devices. A pod has
// come and ended since the List before. If the List of its own question has shown its container, it holds
// nothing. Without a question no List has shown it: for all that can be read, its container can be an init
// container of a living pod. It holds its devices until the kubelet offers them or writes its checkpoint.
func TestPodBetweenTwoLists(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]bool{"asked": true, "not asked": false} {
		a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
		a.keepCheckpoint()
		a.admit(a.add("before"), "c", wish{1, 0})
		brief := a.add("brief")
		a.pods[brief]["worker"] = kubelet.Devices{}
		offered := a.aligned(gpus, []int{0})
		if !asks {
			offered = offered[:2]
		}
		a.give(brief, "worker", gpus, offered, nil, 2)
		a.keep(brief)
		a.remove(brief)
		next := a.add("next")
		a.pods[next]["c"] = kubelet.Devices{}
		for _, resource := range []string{gpus, vfs} { // offered are GPUs of the other node
			a.give(next, "c", resource, a.aligned(resource, []int{1}), nil, 2)
			held := slices.ContainsFunc(a.free[gpus], func(d device.Device) bool {
				return a.coordinator.holderOf(gpus, d.ID) != ""
			})
			if held == asks {
				t.Errorf("%s, question for %s: an ended pod holds a device: %t", name, resource, held)
			}
		}
		a.keep(next)
		a.ask(vfs, 0, 1)
		for _, d := range a.free[gpus] {
			if holder := a.coordinator.holderOf(gpus, d.ID); holder != "" {
				t.Errorf("%s: %s has GPU %s in no checkpoint", name, holder, d.ID)
			}
		}
	}
}

// mixedLoad admits and removes pods at random: pairs, GPUs alone, VFs alone, neither, and pods of two
// containers.
func (a *admission) mixedLoad(steps int) {
	mix := []wish{{1, 1}, {2, 2}, {4, 4}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 0}}
	if a.source != "" {
		mix = append(mix, wish{2, 1}, wish{1, 2}, wish{4, 2}) // without a source these cannot be planned
	}
	for step := range steps {
		if len(a.order) > 0 && a.random.IntN(2) == 0 {
			a.remove(a.order[a.random.IntN(len(a.order))])
			continue
		}
		if a.names > 0 {
			step = a.random.IntN(a.names)
		}
		name := fmt.Sprintf("pod-%d", step)
		if slices.ContainsFunc(a.order, func(p kubelet.Pod) bool { return p.Name == name }) {
			continue
		}
		pod := a.add(name)
		containers := a.containers(mix)
		for _, c := range containers {
			a.pods[pod][c.name] = kubelet.Devices{} // listed from the start
		}
		a.tell(pod, containers...)
		for _, c := range containers {
			if !a.admit(pod, c.name, c.wish) {
				a.remove(pod)
				break
			}
		}
		if a.t.Failed() {
			a.t.Fatalf("step %d", step)
		}
	}
}

// containers makes a pod up.
func (a *admission) containers(mix []wish) []container {
	var containers []container
	first := mix[a.random.IntN(len(mix))]
	if first.gpus > 0 && first.gpus == first.vfs && a.random.IntN(4) == 0 {
		containers = append(containers, container{"init", wish{1, 1}})
	}
	containers = append(containers, container{"c0", first})
	if a.random.IntN(4) == 0 && (a.kubeletDir != "" || a.source != "" || (first.gpus > 0) == (first.vfs > 0)) {
		// Without the checkpoint a container with one half alone and the next one's other half look like one.
		containers = append(containers, container{"c1", mix[a.random.IntN(len(mix))]})
	}
	return containers
}

// A pod that is deleted and created again has the name of the one before. When it asks, what the
// coordinator thinks to be held is held.
func TestPodsOfOneName(t *testing.T) {
	for seed := range uint64(scale.Rounds(80)) {
		a := newAdmission(t, "oci-mi300x-derived", 4, seed%2 == 0, seed)
		a.names, a.late = 4, seed%4 > 1
		a.keepCheckpoint()
		a.mixedLoad(60)
		a.late = false
		if len(a.free[gpus]) < 2 {
			continue // the kubelet would not ask
		}
		pod := a.add("last")
		a.pods[pod]["c0"] = kubelet.Devices{}
		a.give(pod, "c0", gpus, a.free[gpus], nil, 1)
		for name, free := range a.free {
			for _, d := range free {
				if holder := a.coordinator.holderOf(name, d.ID); holder != "" {
					t.Errorf("seed %d: %s %s is free, and said to be held by %s", seed, name, d.ID, holder)
				}
			}
		}
	}
}
