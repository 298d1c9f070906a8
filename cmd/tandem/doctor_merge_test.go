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

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
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

// TestDoctorFindsSlowMerge: on eight NUMA nodes the kubelet's merge of the hints of three resources takes
// seconds, of four minutes, and excludeTopology auto mends that.
func TestDoctorFindsSlowMerge(t *testing.T) {
	t.Parallel()
	sys := sysfs(t, "oci-mi300x-derived", 1)
	const excluded, memory = `"excludeTopology": "auto" in each pool of VFs`, "memoryManagerPolicy: None"
	for name, test := range map[string]struct {
		seed     func(s *sick)
		severity doctor.Severity // "" for no finding
		seen     string
		fix      []string // beginnings
	}{
		"hints": {func(s *sick) { s.excludes("false") }, doctor.Warning,
			"about 6.4 s of CPU time to admit a container with NUMA hints of 3 resources on 8 NUMA nodes",
			[]string{excluded + " (config.json; true in SriovNetworkNodePolicy): about 25 ms", "fewer NUMA nodes"}},
		"auto": {func(s *sick) { s.excludes(`"auto"`) }, "", "", nil},
		"true": {func(s *sick) { s.excludes("true") }, "", "", nil},
		"hints and memory": {func(s *sick) { s.excludes("false"); s.staticMemory() }, doctor.Error,
			"about 27 min",
			[]string{excluded, memory + " in the kubelet's configuration: about 25 ms", "fewer NUMA nodes"}},
		"auto and memory": {func(s *sick) { s.excludes(`"auto"`); s.staticMemory() }, doctor.Warning,
			"memoryManagerPolicy: Static: hints over 8 NUMA nodes", []string{memory, "fewer NUMA nodes"}},
		"no configuration": {func(s *sick) { s.with("--config", "") }, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sys)
			s.eightNodes()
			test.seed(s)
			found := s.findings()
			if test.severity == "" {
				if len(found) > 0 {
					t.Errorf("found\n%s", doctor.Report(found))
				}
				return
			}
			check(t, found, "slow-admission", test.seen)
			if len(found) != 1 || found[0].Severity != test.severity || len(found[0].Fix) != len(test.fix) {
				t.Fatalf("found\n%s", doctor.Report(found))
			}
			for i, want := range test.fix {
				if !strings.HasPrefix(found[0].Fix[i], want) {
					t.Errorf("remedy %d is not %q:\n%s", i, want, doctor.Report(found))
				}
			}
		})
	}
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

// TestPlanOfSlowMerge: the note says how long the kubelet merges the hints of the planned request, which has
// fewer combinations if more devices are requested, or with fewer resources.
func TestPlanOfSlowMerge(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	const seconds = "about 6.4 s of CPU time to merge the hints on 8 NUMA nodes, " +
		"and with memoryManagerPolicy Static about 27 min on 8 NUMA nodes"
	const mend = `; "excludeTopology": "auto" in the pool of VFs reduces the times to about 25 ms and 6.4 s`
	const memory = "about 25 ms of CPU time to merge the hints on 8 NUMA nodes, " +
		"and with memoryManagerPolicy Static about 6.4 s on 8 NUMA nodes, while no other pod starts"
	plan := func(exclude, gpus, vfs string) string {
		s.excludes(exclude)
		code, stdout, stderr := run("plan", "-o", "json", "--gpus", gpus, "--vfs", vfs,
			"--sysfs-root", s.path("sys"), "--config", s.path("config.json"))
		var p struct{ Note string }
		if err := json.Unmarshal([]byte(stdout), &p); err != nil || code != cli.ExitOK && code != exitFound {
			t.Fatalf("%v: exit code %d, %s%s", err, code, stdout, stderr)
		}
		if told := strings.Contains(stderr, "excludeTopology auto: no NUMA hints"); told != (exclude == `"auto"`) {
			t.Errorf("excludeTopology %s: standard error %q", exclude, stderr)
		}
		return p.Note
	}
	if note := plan("false", "1", "1"); note != "" {
		t.Errorf("two NUMA nodes: note %q", note)
	}
	s.eightNodes()
	if note := plan("false", "1", "1"); !strings.Contains(note, seconds) || !strings.HasSuffix(note, mend) {
		t.Errorf("note %q", note)
	}
	for _, quick := range [][3]string{{`"auto"`, "1", "1"}, {"true", "1", "1"}, {"false", "1", "0"}} {
		if note := plan(quick[0], quick[1], quick[2]); !strings.HasSuffix(note, memory) {
			t.Errorf("%v: note %q", quick, note)
		}
	}
	if note := plan("false", "8", "8"); note != "" {
		t.Errorf("all devices: note %q", note)
	}
	s.halve()
	if note := plan("false", "1", "1"); !strings.Contains(note, "about 22 ms") ||
		!strings.Contains(note, "Static about 5.6 s") || !strings.HasSuffix(note, "about 1.5 ms and 376 ms") {
		t.Errorf("devices on four of eight NUMA nodes: note %q", note)
	}
	s.write("sys/devices/system/node/node0/cpulist", "0-63\n")
	for number := 1; number < 8; number++ {
		s.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", number), "\n")
	}
	if note := plan("false", "1", "1"); note != "" {
		t.Errorf("CPUs on one NUMA node: note %q", note)
	}
	s.write(s.device(ociGPU0, "numa_node"), "-1\n")
	if note := plan("false", "8", "1"); !strings.HasPrefix(note, "under policy restricted") ||
		strings.Contains(note, ";;") {
		t.Errorf("refused: note %q", note)
	}
}

// TestDoctorTellsOfAuto: the report names the decision about the hints of a pool with excludeTopology auto.
func TestDoctorTellsOfAuto(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.excludes(`"auto"`)
	for _, want := range []string{
		"NUMA hints, because the kubelet admits as many VFs as GPUs with them",
		"no NUMA hints, because the kubelet would take about 6.4 s to merge the hints of a container",
	} {
		_, stdout, stderr := run(s.command()...)
		if !strings.Contains(stdout, `  note  resource "rdma_vf": excludeTopology auto: `+want+"\n") {
			t.Errorf("no %q:\n%s%s", want, stdout, stderr)
		}
		s.eightNodes()
	}
}
