// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/publish"
)

// Files of the kubelet.
const (
	configFile      = "config.yaml"
	cpuStateFile    = "cpu_manager_state"
	memoryStateFile = "memory_manager_state"
)

// config is a configuration with exclusive CPUs and memory.
const config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
	"cpuManagerPolicy: static\nmemoryManagerPolicy: Static\n"

// halfAssigned is a memory manager's state, with the half of the memory of NUMA node 0 assigned.
const halfAssigned = `{"policyName": "Static", "checksum": 1, "machineState": {"0": {"numberOfAssignments": 1,
	"memoryMap": {"memory":
		{"total": 1024, "systemReserved": 0, "allocatable": 1024, "reserved": 512, "free": 512}},
	"cells": [0]}}, "entries": {"uid": {"main": [{"numaAffinity": [0], "type": "memory", "size": 512}]}}}`

// writtenCPUs returns a CPU manager's state.
func writtenCPUs(entries string) string {
	return `{"policyName": "static", "defaultCpuSet": "0-1,6-223", "checksum": 1, "entries": ` + entries + `}`
}

// kubeletFile writes a file of the kubelet.
func (n *node) kubeletFile(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.kubeletDir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runBoth publishes NodeTopology and NodeResourceTopology until the test ends or stop is called.
func runBoth(t testing.TB, n *node, s *server) (stop func()) {
	t.Helper()
	stop = run(t, n.publisher(t, s, "tandem", "nrt"), n)
	wait(t, time.Second)
	return stop
}

// available returns the sum of an amount that the NodeResourceTopology has of the NUMA nodes.
func (s *server) available(resource string) (sum int) {
	zones, _ := s.at(zonesOfA, "zones").([]any)
	for _, zone := range zones {
		fields := zone.(map[string]any)
		all, _ := fields["resources"].([]any)
		for _, one := range all {
			if one := one.(map[string]any); fields["type"] == "Node" && one["name"] == resource {
				amount, _ := strconv.Atoi(fmt.Sprint(one["available"]))
				sum += amount
			}
		}
	}
	return sum
}

// TestAvailableCPUs: the CPUs that the NodeResourceTopology calls available are those of the machine's 224
// that the static policy can assign: without the CPUs of containers, each counted once, and without those
// reserved for the system.
func TestAvailableCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		entries, reserved string
		want              int
	}{
		"one container":               {`{"uid": {"main": "2-5"}}`, "", 220},
		"reserved by name":            {`{}`, "reservedSystemCPUs: 0-1\n", 222},
		"an init container before it": {`{"uid": {"init": "2-5", "main": "2-5"}}`, "", 220},
		"reserved by number":          {`{}`, "kubeReserved: {cpu: 500m}\nsystemReserved: {cpu: \"1.5\"}\n", 222},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s := newNode(t, "a"), newServer("a")
				n.kubeletFile(t, configFile, config+c.reserved)
				n.kubeletFile(t, cpuStateFile, writtenCPUs(c.entries))
				n.kubeletFile(t, memoryStateFile, halfAssigned)
				defer runBoth(t, n, s)()
				if got := s.available("cpu"); got != c.want {
					t.Errorf("%d CPUs are available, want %d", got, c.want)
				}
			})
		})
	}
}

// TestUnknownManagerState: a state file of a layout that is not the kubelet's does not make the published
// CPUs and memory free: they stay as last known.
func TestUnknownManagerState(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
	}{
		"control: CPUs, cut off": {cpuStateFile, writtenCPUs("{")[:40]},
		"CPUs, null":             {cpuStateFile, `null`},
		"CPUs, empty":            {cpuStateFile, `{}`},
		"CPUs, one level deeper": {cpuStateFile, `{"data": ` + writtenCPUs(`{"uid": {"main": "2-5"}}`) + `}`},
		"memory, null":           {memoryStateFile, `null`},
		"memory, empty":          {memoryStateFile, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s := newNode(t, "a"), newServer("a")
				n.kubeletFile(t, configFile, config)
				n.kubeletFile(t, cpuStateFile, writtenCPUs(`{"uid": {"main": "2-5"}}`))
				n.kubeletFile(t, memoryStateFile, halfAssigned)
				defer runBoth(t, n, s)()
				seen := func() []any {
					return []any{s.available("cpu"), s.available("memory"), s.at(topologyOf("a"), "spec")}
				}
				before := seen()
				if before[0] != 220 || before[1].(int)%1024 != 512 {
					t.Fatalf("control: CPUs and memory %v", before[:2])
				}
				n.kubeletFile(t, c.file, c.content)
				n.events <- publish.Written
				wait(t, time.Second)
				if diff := cmp.Diff(before, seen()); diff != "" {
					t.Errorf("published from an unknown state (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// TestManagerNeverRead: the daemon of a node may lack the kubelet's folder, with the files of its managers.
// The devices are published, and nobody learns of CPUs and memory that any are free.
func TestManagerNeverRead(t *testing.T) {
	for _, missing := range []string{cpuStateFile, memoryStateFile} {
		t.Run(missing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s := newNode(t, "a"), newServer("a")
				n.kubeletFile(t, configFile, config)
				n.kubeletFile(t, cpuStateFile, writtenCPUs(`{"uid": {"main": "2-5"}}`))
				n.kubeletFile(t, memoryStateFile, halfAssigned)
				if err := os.Remove(filepath.Join(n.kubeletDir, missing)); err != nil {
					t.Fatal(err)
				}
				publisher := n.publisher(t, s)
				defer run(t, publisher, n)()
				wait(t, time.Second)
				if got := s.at(topologyOf("a"), "spec", "summary", "gpus"); got != "8/8" {
					t.Errorf("GPUs %v, want 8/8", got)
				}
				node, _ := s.at(topologyOf("a"), "spec", "numaNodes").([]any)[0].(map[string]any)
				cpus, memory := node["cpus"] != nil, node["memory"] != nil
				if cpus != (missing != cpuStateFile) || memory != (missing != memoryStateFile) {
					t.Errorf("NUMA node %v", node)
				}
				if notes := fmt.Sprint(publisher.Notes()); !strings.Contains(notes, missing) {
					t.Errorf("notes %s do not name %s", notes, missing)
				}
			})
		})
	}
}
