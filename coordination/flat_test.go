// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

var capacity = flag.Bool("capacity", false, "measure memory on a node with as many devices as it can have")

var rounds = flag.Int("rounds", 1000, "admissions of TestNodesStayFlat, of two questions each")

// pairOfNodes is a recorded machine with both plugins' parts, over real sockets, without a kubelet.
type pairOfNodes struct {
	members map[string]*Member
	ids     map[string][]string
}

func newPairOfNodes(t testing.TB) *pairOfNodes {
	t.Helper()
	return newPairOf(t, 4, map[string]int{gpus: 1, vfs: 1})
}

// newPairOf is a pair on a machine of which each device is offered so often.
func newPairOf(t testing.TB, vfsPerPF int, often map[string]int) *pairOfNodes {
	t.Helper()
	recorded, err := machines.Load("oci-mi300x-derived", vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(recorded.FS())
	if err != nil {
		t.Fatal(err)
	}
	sys := filepath.Join(t.TempDir(), "sys")
	if err := os.CopyFS(sys, recorded.FS()); err != nil {
		t.Fatal(err)
	}
	all := map[string]device.Announcement{}
	for d := range tree.Devices() {
		name := vfs
		if d.Class.IsGPU() {
			name = gpus
		} else if !d.IsVF() {
			continue
		}
		for n := range often[name] {
			one := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
			if often[name] > 1 {
				one.ID += fmt.Sprint("::", n)
			}
			all[name] = device.Announcement{Devices: append(all[name].Devices, one)}
		}
	}
	p := &pairOfNodes{members: map[string]*Member{}, ids: map[string][]string{}}
	dir := filepath.Join(shortDir(t), "run")
	for name, kind := range map[string]device.Kind{gpus: device.GPU, vfs: device.VF} {
		node, _ := startWith(t, Config{
			RunDir: dir, SysRoot: sys, Log: slog.New(slog.NewTextHandler(devNull(t), nil)),
		})
		p.members[name] = node.Member(name, kind)
		p.members[name].Publish(all[name])
		for _, d := range all[name].Devices {
			p.ids[name] = append(p.ids[name], d.ID)
		}
	}
	await(t, dir, connected(gpus, vfs))
	return p
}

func devNull(t testing.TB) *os.File {
	t.Helper()
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func (p *pairOfNodes) admit(t testing.TB) {
	t.Helper()
	for _, name := range []string{gpus, vfs} {
		chosen := p.members[name].Prefer(t.Context(), p.ids[name], nil, 2)
		if listed, _, err := p.members[name].Allocated(t.Context(), chosen); err != nil || len(listed) != 2 {
			t.Fatalf("allocate 2 of %s: %v, %v, %v", name, chosen, listed, err)
		}
	}
}

// Goroutines, descriptors and memory do not grow with the number of admissions.
func TestNodesStayFlat(t *testing.T) {
	p := newPairOfNodes(t)
	count := func() (goroutines, descriptors int, heap uint64) {
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(open), memory.HeapAlloc
	}
	rounds := scale.Rounds(*rounds)
	for range max(rounds/10, 2*history.Most) {
		p.admit(t)
	}
	goroutines, descriptors, heap := count()
	for range rounds {
		p.admit(t)
	}
	goroutines2, descriptors2, heap2 := count()
	t.Logf("after %d admissions: %d goroutines (%d before), %d descriptors (%d), %.1f MiB heap (%.1f)", rounds,
		goroutines2, goroutines, descriptors2, descriptors, float64(heap2)/(1<<20), float64(heap)/(1<<20))
	if goroutines2 > goroutines+5 || descriptors2 > descriptors+2 || heap2 > heap+1<<20 {
		t.Error("something grows")
	}
}

// What both plugins' parts take together on a node with as many devices as the kubelet can be told of:
// eight GPUs of which each is shared by 2,000 containers, and eight HCAs of which each is shared by 1,000.
// It takes a while.
func TestMemoryAtCapacity(t *testing.T) {
	if !*capacity {
		t.Skip("without -capacity")
	}
	p := newPairOf(t, 1, map[string]int{gpus: 2000, vfs: 1000})
	for n := range history.Most/2 + 1 {
		if p.admit(t); n > 0 && n < history.Most/2 {
			continue
		}
		runtime.GC()
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		peak, _, _ = strings.Cut(peak, "\n")
		t.Logf("after %d admissions: %d MiB live, peak of the process %s", n+1, memory.HeapAlloc>>20,
			strings.TrimSpace(peak))
	}
}

// BenchmarkAdmission is a container with two GPUs and two VFs over the coordination socket: two questions and
// two Allocates.
func BenchmarkAdmission(b *testing.B) {
	p := newPairOfNodes(b)
	for b.Loop() {
		p.admit(b)
	}
}
