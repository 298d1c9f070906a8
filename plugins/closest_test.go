// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestClosestNUMANodes: a machine has two sockets with the NUMA nodes 0 and 1, and 2 and 3; a GPU of node
// 1 is taken. A container requests 8 GPUs and 8 VFs, and the VFs, which have no NUMA node, are allocated
// first. For the GPUs the kubelet then uses nodes 0 and 2, with the option prefer-closest-numa-nodes nodes
// 2 and 3.
func TestClosestNUMANodes(t *testing.T) {
	s := newScene(t, "amd-mi250-16gcd-8nic", 2, `"selectors": {"isRdma": true}, "excludeTopology": true`)
	for node, distances := range []string{"10 12 32 32", "12 10 32 32", "32 32 10 12", "32 32 12 10"} {
		s.write(t, fmt.Sprintf("sys/devices/system/node/node%d/distance", node), distances+"\n")
	}
	if got := s.nodesOfVFs(t, ""); !slices.Equal(got, []int{0, 2}) {
		t.Fatalf("without the option, VFs are on nodes %v, not on 0 and 2", got)
	}
	const option = "topologyManagerPolicyOptions:\n  prefer-closest-numa-nodes: \"true\"\n"
	if got := s.nodesOfVFs(t, option); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("with the option, VFs are not on nodes 2 and 3, but on %v", got)
	}
}

// nodesOfVFs returns the NUMA nodes of the VFs that a container gets, under more settings of the kubelet.
func (s *scene) nodesOfVFs(t *testing.T, settings string) (nodes []int) {
	t.Helper()
	s.configureKubelet(t, settings)
	stop := s.runBoth(t)
	defer stop()
	onNode := s.numaNodes()
	taken := slices.IndexFunc(s.ids[gpus], func(id string) bool { return onNode[id] == 1 })
	s.record(t, held("holder", gpus, s.ids[gpus][taken]))
	s.timely(t, func(attempt int) string {
		s.pods(running("holder", map[string]string{gpus: "1"}),
			pending(fmt.Sprint("asker", attempt), map[string]string{gpus: "8", vfs: "8"}))
		nodes = nil
		for _, vf := range s.prefer(t, vfs, s.ids[vfs], 8) {
			nodes = append(nodes, onNode[vf])
		}
		return ""
	})
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// numaNodes returns the NUMA nodes of the machine's devices.
func (s *scene) numaNodes() map[string]int {
	nodes := map[string]int{}
	for d := range s.tree.Devices() {
		nodes[d.Address.String()], _ = d.NUMA.Number()
	}
	return nodes
}

// configureKubelet writes the kubelet's configuration with more settings.
func (s *scene) configureKubelet(t *testing.T, settings string) {
	t.Helper()
	s.write(t, "kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
		"topologyManagerPolicy: restricted\ntopologyManagerScope: container\n"+settings)
	if err := os.MkdirAll(s.path("kubelet.conf.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.flags = append(s.flags, "--kubelet-config="+s.path("kubelet.yaml"),
		"--kubelet-config-dir="+s.path("kubelet.conf.d"))
}
