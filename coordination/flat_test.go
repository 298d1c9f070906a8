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
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

var capacity = flag.Bool("capacity", false, "measure memory on a node with as many devices as it can have")

var rounds = flag.Int("rounds", 1000, "admissions of TestNodesStayFlat, of two questions each")

// pairOfNodes is a recorded machine with both plugins' parts, over real sockets, without a kubelet.
type pairOfNodes struct {
	config    Config
	kinds     map[string]device.Kind
	announced map[string]device.Announcement
	members   map[string]*Member
	ids       map[string][]string
	stops     map[string]func()
}

// once offers each device once.
var once = map[string]int{gpus: 1, vfs: 1}

func newPairOfNodes(t testing.TB) *pairOfNodes {
	t.Helper()
	return newPairOf(t, "oci-mi300x-derived", 4, once)
}

// announceMachine returns the PCI tree of a recorded machine, its sysfs as a folder, and the announcements of
// both plugins, with each device so often.
func announceMachine(
	t testing.TB, machine string, vfsPerPF int, often map[string]int,
) (tree *topology.Tree, sys string, all map[string]device.Announcement) {
	t.Helper()
	root, tree := machines.Read(t, machine, vfsPerPF)
	sys = filepath.Join(t.TempDir(), "sys")
	if err := os.CopyFS(sys, root); err != nil {
		t.Fatal(err)
	}
	all = map[string]device.Announcement{}
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
	return tree, sys, all
}

// newPairOf is a pair on a machine of which each device is offered so often.
func newPairOf(t testing.TB, machine string, vfsPerPF int, often map[string]int) *pairOfNodes {
	t.Helper()
	_, sys, all := announceMachine(t, machine, vfsPerPF, often)
	p := &pairOfNodes{
		config: Config{
			RunDir: filepath.Join(shortDir(t), "run"), SysRoot: sys, KubeletDir: shortDir(t),
			Log: slog.New(slog.NewTextHandler(devNull(t), nil)),
		},
		kinds: map[string]device.Kind{gpus: device.GPU, vfs: device.VF}, announced: all,
		members: map[string]*Member{}, ids: map[string][]string{}, stops: map[string]func(){},
	}
	for name := range p.kinds {
		p.start(t, name)
		t.Cleanup(func() { p.stops[name]() })
		for _, d := range all[name].Devices {
			p.ids[name] = append(p.ids[name], d.ID)
		}
	}
	p.await(t)
	return p
}

// start starts the plugin of a resource, which the function in stops ends.
func (p *pairOfNodes) start(t testing.TB, name string) {
	t.Helper()
	var node *Node
	node, p.stops[name] = run(t, p.config)
	p.members[name] = node.Member(name, p.kinds[name])
	p.members[name].Publish(p.announced[name])
}

// await waits until both plugins have joined, and returns the status.
func (p *pairOfNodes) await(t testing.TB) *api.StatusResponse {
	t.Helper()
	return await(t, p.config.RunDir, connected(gpus, vfs))
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
		chosen := choose(t, p.members[name], p.ids[name], nil, 2)
		listed, _, err := p.members[name].Allocated(t.Context(), p.members[name].StartAllocate(t.Context(), chosen))
		if err != nil || len(listed) != 2 {
			t.Fatalf("allocate 2 of %s: %v, %v, %v", name, chosen, listed, err)
		}
	}
}

// decisions is the number of decisions that a server keeps.
const decisions = 256

// Goroutines, descriptors and memory do not grow with the number of admissions.
func TestNodesStayFlat(t *testing.T) {
	p := newPairOfNodes(t)
	rounds := scale.Rounds(*rounds)
	for range max(rounds/10, decisions/2+1) { // of two questions each
		p.admit(t)
	}
	before := measureUsage(t)
	for range rounds {
		p.admit(t)
	}
	before.compare(t)
}

// usage is what a process has.
type usage struct {
	goroutines, descriptors int
	heap                    uint64 // bytes
}

func measureUsage(t testing.TB) usage {
	t.Helper()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return usage{runtime.NumGoroutine(), len(open), memory.HeapAlloc}
}

// compare waits until the present usage is not more than the usage before: closed connections end a moment
// later.
func (u usage) compare(t testing.TB) {
	t.Helper()
	late := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	now := measureUsage(t)
	for waiting := true; waiting && now.exceeds(u); {
		select {
		case <-tick.C:
			now = measureUsage(t)
		case <-late:
			waiting = false
		}
	}
	t.Logf("%d goroutines (%d before), %d descriptors (%d), %.1f MiB heap (%.1f)", now.goroutines,
		u.goroutines, now.descriptors, u.descriptors, float64(now.heap)/(1<<20),
		float64(u.heap)/(1<<20))
	if now.exceeds(u) {
		t.Error("something grows")
	}
}

// exceeds reports whether the usage is more than a former usage, with a tolerance for garbage and timers.
func (u usage) exceeds(before usage) bool {
	return u.goroutines > before.goroutines+5 || u.descriptors > before.descriptors+2 ||
		u.heap > before.heap+1<<20
}

// What both plugins' parts take together on a node with as many devices as the kubelet can be told of:
// eight GPUs of which each is shared by 2,000 containers, and eight HCAs of which each is shared by 1,000.
// It takes a while.
func TestMemoryAtCapacity(t *testing.T) {
	if !*capacity {
		t.Skip("without -capacity")
	}
	p := newPairOf(t, "oci-mi300x-derived", 1, map[string]int{gpus: 2000, vfs: 1000})
	for n := range decisions/2 + 1 {
		if p.admit(t); n > 0 && n < decisions/2 {
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
	for name, vfs := range map[string]int{"oci-mi300x-derived": 4, "amd-mi250-16gcd-8nic": 255} {
		b.Run(fmt.Sprintf("%s, %d VFs per PF", name, vfs), func(b *testing.B) {
			p := newPairOf(b, name, vfs, once)
			for b.Loop() {
				p.admit(b)
			}
		})
	}
}
