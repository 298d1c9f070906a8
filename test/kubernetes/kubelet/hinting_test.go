// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
)

// counted is a resource by its number of devices on each NUMA node.
type counted map[string][]int

// resources returns the resources for the rule.
func (c counted) resources() (list []model.Resource) {
	for name, perNode := range c {
		r := model.Resource{Name: name}
		for n, count := range perNode {
			one := []model.Device{{NUMA: topology.Node(n), Healthy: true}}
			r.Devices = append(r.Devices, slices.Repeat(one, count)...)
		}
		list = append(list, r)
	}
	return list
}

// offer offers the resources to a node, with the NUMA nodes of those with hints.
func (c counted) offer(t *testing.T, n *node.Node, dir string, hinted func(name string) bool) {
	t.Helper()
	for name, perNode := range c {
		plugin := &fakePlugin{resource: name, calls: &calls{}}
		for on, count := range perNode {
			for i := range count {
				d := &v1beta1.Device{ID: fmt.Sprintf("%s-%d-%d", filepath.Base(name), on, i), Health: v1beta1.Healthy}
				if hinted(name) {
					d.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(on)}}}
				}
				plugin.devices = append(plugin.devices, d)
			}
		}
		plugin.run(t, dir)
		must(t, n.WaitAllocatable(deadline(t), name, len(plugin.devices)))
	}
}

// total returns the number of devices of a resource.
func (c counted) total(name string) (sum int) {
	for _, n := range c[name] {
		sum += n
	}
	return sum
}

// TestDecisionsAtTheKubelet: with the hints that the rule gives, an empty node admits each container of k
// GPUs and k VFs, or all VFs of a smaller pool, that it admits with k GPUs alone. With the hints of all pools
// it rejects one if the rule withholds some.
func TestDecisionsAtTheKubelet(t *testing.T) {
	mig := counted{"example.com/mig-1g": {7, 7}, "example.com/mig-3g": {4, 2}}
	gpus, eight := counted{fakeGPU: {4, 4}}, []int{1, 1, 1, 1, 1, 1, 1, 1}
	rails := counted{}
	for i := range 4 {
		rails[fmt.Sprint("example.com/rail", i)] = [][]int{{2, 0}, {0, 2}}[i/2]
	}
	for name, c := range map[string]struct {
		policy    string
		gpus, vfs counted
		hinted    int // pools
	}{
		"a VF for each GPU":     {"", gpus, counted{fakeVF: {4, 4}}, 1},
		"four for each GPU":     {"", gpus, counted{fakeVF: {16, 16}}, 0},
		"a pool for each rail":  {"", gpus, rails, 0},
		"mixed MIG":             {"", mig, counted{fakeVF: {7, 7}}, 0},
		"replicas":              {"", counted{fakeGPU: {16, 16}}, counted{fakeVF: {16, 16}}, 1},
		"one node alone":        {"single-numa-node", gpus, counted{fakeVF: {16, 16}}, 1},
		"one node, few VFs":     {"single-numa-node", gpus, counted{fakeVF: {2, 2}}, 0},
		"eight nodes":           {"", counted{fakeGPU: eight}, counted{fakeVF: eight}, 1},
		"eight nodes, many VFs": {"", counted{fakeGPU: eight}, counted{fakeVF: {2, 2, 2, 2, 2, 2, 2, 2}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := model.Hinting{GPUs: c.gpus.resources(), Kubelet: model.Kubelet{
				TopologyManagerPolicy: c.policy, CPUManagerPolicy: "none", MemoryManagerPolicy: "None",
			}}
			for _, r := range c.vfs.resources() {
				h.Pools = append(h.Pools, model.Pool{Resource: r})
			}
			against, hinted := h.Decide(), 0
			chosen := func(name string) bool { return against[name] == "" }
			for name := range c.vfs {
				if chosen(name) {
					hinted++
				}
			}
			if hinted != c.hinted {
				t.Errorf("%d pools have hints, want %d: %q", hinted, c.hinted, against)
			}
			if refused := refusedPairs(t, c.policy, c.gpus, c.vfs, chosen); len(refused) > 0 {
				t.Errorf("with the hints of the rule the kubelet rejects %v", refused)
			}
			all := func(string) bool { return true }
			if refused := refusedPairs(t, c.policy, c.gpus, c.vfs, all); (len(refused) > 0) != (hinted < len(c.vfs)) {
				t.Errorf("with all hints the kubelet rejects %v", refused)
			}
		})
	}
}

// refusedPairs returns the containers that an empty node rejects, and that it admits without VFs.
func refusedPairs(
	t *testing.T, policy string, gpus, vfs counted, hinted func(string) bool,
) (refused []string) {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "")
	must(t, err)
	options := node.Options{Policy: policy}
	nodes := 0
	for _, perNode := range gpus {
		nodes = len(perNode)
	}
	for id := range nodes {
		options.NUMA = append(options.NUMA, node.NUMA{ID: id, Distances: slices.Repeat([]uint64{10}, nodes)})
	}
	n, err := node.Start(dir, options)
	must(t, err)
	defer func() { must(t, n.Stop()) }()
	gpus.offer(t, n, dir, func(string) bool { return true })
	vfs.offer(t, n, dir, hinted)
	admits := func(requests map[string]int) bool {
		pod := node.Pod(fmt.Sprint("pod-", requests), nil, []v1.Container{node.Container("app", requests)})
		err := n.Admit(pod)
		if err == nil {
			must(t, n.Remove(pod))
		}
		return err == nil
	}
	for gpu := range gpus {
		for k := 1; k <= gpus.total(gpu); k++ {
			if !admits(map[string]int{gpu: k}) {
				continue
			}
			for vf := range vfs {
				if requests := (map[string]int{gpu: k, vf: min(k, vfs.total(vf))}); !admits(requests) {
					refused = append(refused, fmt.Sprint(requests))
				}
			}
		}
	}
	return refused
}

// TestHintsFlip: a pod runs that was admitted with NUMA hints, before the GPUs were known. The plugin for
// GPUs joins, and the hints are withdrawn, since there are four VFs for each GPU. The restarted kubelet
// admits the pod again, and also a pod of all GPUs, whose VFs have no hints.
func TestHintsFlip(t *testing.T) {
	u := startUpgrade(t, daemons(t), stockPool)
	u.must(errors.Join(u.Pair.GPU.Kill(), u.Pair.RDMA.Kill()))
	files, err := filepath.Glob(filepath.Join(u.RunDir(), "*"))
	u.must(err)
	for _, name := range files {
		u.must(os.RemoveAll(name))
	}
	boot, err := system.Disk{}.BootID()
	u.must(err)
	u.must(os.WriteFile(filepath.Join(u.RunDir(), "vfs.json"), fmt.Appendf(nil, `{"boot": %q, "listed": {},
		"hidden": {}, "hints": {%q: {"hints": true, "since": "2026-01-01T00:00:00Z", "settled": true}}}`,
		boot, rig.VF), 0o600))
	u.must(u.Pair.RDMA.Start())
	u.awaitHints(true)
	running := shape{app: []want{{vfs: 2}}}.pod("running", u.GPU)
	u.must(u.Node.Admit(running))
	u.must(u.Pair.GPU.Start())
	u.must(u.WaitReady(deadline(t)))
	u.awaitHints(false)
	u.restartKubelet()
	whole := shape{app: []want{{8, 8}}}.pod("whole", u.GPU)
	_, err = u.Admit(deadline(t), whole)
	u.must(err)
	u.restartKubelet()
}

// TestHintsAfterTheLastPod: a pod gets a device before hints can be given, and ends. The kubelet frees the
// device at its next admission, without a word in its checkpoint, and the hints are given nevertheless.
func TestHintsAfterTheLastPod(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for half a minute at least")
	}
	t.Parallel()
	u := &upgrade{t: t, Rig: startRig(t, rig.Setup{
		Machine: "oci-mi300x-derived", VFsPerPF: 1, Auto: true, Coordinated: true, PodsAPI: true,
	})}
	pod := shape{app: []want{{1, 1}}}.pod("first", u.GPU)
	_, err := u.Admit(deadline(t), pod)
	u.must(err)
	u.awaitHints(false)
	u.must(u.Node.Remove(pod))
	u.must(u.Node.Admit(node.Pod("other", nil, []v1.Container{node.Container("app", nil)})))
	u.awaitHints(true)
}

// awaitHints waits until the kubelet has the NUMA nodes of all VFs, or of none.
func (u *upgrade) awaitHints(want bool) {
	u.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx := deadline(u.t); ; {
		inventory := u.Node.Inventory(rig.VF)
		other := len(inventory) != u.VFs()
		for _, nodes := range inventory {
			other = other || len(nodes) > 0 != want
		}
		if !other {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			u.t.Fatalf("hints %t: the kubelet has %v", want, inventory)
		}
	}
}
