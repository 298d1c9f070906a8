// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/golden"
)

// eightNodes gives each of the eight root complexes with a GPU, and a share of the CPUs, a NUMA node of its
// own, as with NPS4 on two sockets.
func (s *sick) eightNodes() {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*"))
	s.check(err)
	roots := map[string][]string{}
	for _, function := range functions {
		place, err := filepath.EvalSymlinks(function)
		s.check(err)
		_, below, _ := strings.Cut(place, "/devices/")
		root, _, _ := strings.Cut(below, "/")
		roots[root] = append(roots[root], filepath.Base(function))
	}
	number := 0
	for _, root := range slices.Sorted(maps.Keys(roots)) {
		if len(roots[root]) < 3 { // neither GPU nor NIC
			continue
		}
		for _, address := range roots[root] {
			s.write(s.device(address, "numa_node"), fmt.Sprintln(number))
		}
		number++
	}
	if number != 8 {
		s.t.Fatalf("%d root complexes with devices, want 8", number)
	}
	s.write("sys/devices/system/node/online", "0-7\n")
	for node := range 8 {
		cpus := fmt.Sprintf("%d-%d\n", 28*node, 28*node+27)
		s.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node), cpus)
	}
}

// staticMemory switches the memory manager on.
func (s *sick) staticMemory() {
	s.t.Helper()
	s.kubelet("cpuManagerPolicy: static", "cpuManagerPolicy: static\nmemoryManagerPolicy: Static\n"+
		"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]")
	s.remove("kubelet/memory_manager_state")
}

// excludes sets excludeTopology of the pool.
func (s *sick) excludes(value string) {
	s.t.Helper()
	s.write("config.json", strings.Replace(everyVF, `"excludeTopology": true`, `"excludeTopology": `+value, 1))
}

// halve moves the devices of the upper four of eight NUMA nodes to the lower four.
func (s *sick) halve() {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*"))
	s.check(err)
	for _, function := range functions {
		name := s.device(filepath.Base(function), "numa_node")
		content, err := os.ReadFile(s.path(name))
		s.check(err)
		if number, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && number >= 4 {
			s.write(name, fmt.Sprintln(number-4))
		}
	}
}

// oneNode gives all CPUs to the first NUMA node.
func (s *sick) oneNode() {
	s.t.Helper()
	s.write("sys/devices/system/node/node0/cpulist", "0-63\n")
	for number := 1; number < 8; number++ {
		s.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", number), "\n")
	}
}

// TestPlanOfSlowMerge: the note says how long the kubelet merges the hints of the planned request, which has
// fewer combinations if more devices are requested, or with fewer resources.
func TestPlanOfSlowMerge(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, oci, 1))
	var notes strings.Builder
	for _, c := range []struct {
		about              string
		change             func()
		exclude, gpus, vfs string
	}{
		{"two NUMA nodes", func() {}, "false", "1", "1"},
		{"eight", s.eightNodes, "false", "1", "1"},
		{"eight", func() {}, `"auto"`, "1", "1"},
		{"eight", func() {}, "true", "1", "1"},
		{"eight, no VFs", func() {}, "false", "1", "0"},
		{"all devices", func() {}, "false", "8", "8"},
		{"devices on four of eight NUMA nodes", s.halve, "false", "1", "1"},
		{"CPUs on one NUMA node", s.oneNode, "false", "1", "1"},
		{"refused", func() { s.write(s.device(ociGPU0, "numa_node"), "-1\n") }, "false", "8", "1"},
	} {
		c.change()
		s.excludes(c.exclude)
		_, stdout, stderr := run("plan", "-o", "json", "--gpus", c.gpus, "--vfs", c.vfs,
			"--sysfs-root", s.path("sys"), "--config", s.path("config.json"))
		var p struct{ Note string }
		s.check(json.Unmarshal([]byte(stdout), &p))
		fmt.Fprintf(&notes, "== %s: excludeTopology %s, %s GPUs, %s VFs\n%s\n%s\n",
			c.about, c.exclude, c.gpus, c.vfs, p.Note, stderr)
	}
	golden.Check(t, "testdata/plan-slow-merge.txt", notes.String())
}
