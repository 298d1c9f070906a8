// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/checkpoint"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	standin "github.com/tandem-k8s/tandem/test/podresources"
	"github.com/tandem-k8s/tandem/test/programs"
	"github.com/tandem-k8s/tandem/test/scale"
)

var (
	rounds = flag.Int("rounds", 300, "admissions of TestDaemonsStayFlat, of two questions each")
	idle   = flag.Duration("idle", 3*time.Second, "how long TestDaemonsIdle looks")
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/rdma"
)

// node is a kubelet with daemons, each a process of its own, on a recorded machine.
type node struct {
	root    string
	dir     string   // the kubelet's
	runDir  string   // of both daemons
	flags   []string // of both daemons
	kubelet *kubelettest.Kubelet
	plugins map[string]*kubelettest.Plugin
	ids     map[string][]string
	health  map[string]map[string]string // of the first list, by resource and ID
	daemons []*programs.Process
	pods    pods
}

// pods is the kubelet's PodResources: 30 pods without devices, and the one that was admitted last.
type pods struct {
	mu   sync.Mutex
	last *podresources.PodResources
}

func (p *pods) list() []*podresources.PodResources {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []*podresources.PodResources{p.last}
	for i := range 30 {
		all = append(all, &podresources.PodResources{
			Name: fmt.Sprint("other-", i), Namespace: "team",
			Containers: []*podresources.ContainerResources{{Name: "c"}},
		})
	}
	return all
}

// begin replaces the last pod by a new one.
func (p *pods) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = &podresources.PodResources{
		Name: name, Namespace: "team", Containers: []*podresources.ContainerResources{{Name: "worker"}},
	}
}

func (p *pods) give(resource string, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.last.GetContainers()[0]
	devices := append(slices.Clone(before.GetDevices()), &podresources.ContainerDevices{
		ResourceName: resource, DeviceIds: ids,
	})
	p.last = &podresources.PodResources{
		Name:       p.last.GetName(),
		Namespace:  "team",
		Containers: []*podresources.ContainerResources{{Name: "worker", Devices: devices}},
	}
}

// newNode lays a machine out, with VFs on every PF, and starts the kubelet.
func newNode(t testing.TB, machine string, vfsPerPF int) *node {
	t.Helper()
	dir := kubelettest.Dir(t)
	root := t.TempDir()
	if err := errors.Join(os.CopyFS(filepath.Join(root, "sys"), machines.Sys(t, machine, vfsPerPF)),
		os.Mkdir(filepath.Join(root, "dev"), 0o700), checkpoint.Write(dir, nil, nil)); err != nil {
		t.Fatal(err)
	}
	n := &node{
		root: root, dir: dir, runDir: inMemory(t),
		plugins: map[string]*kubelettest.Plugin{}, ids: map[string][]string{},
		health: map[string]map[string]string{},
	}
	n.flags = []string{
		"--sysfs-root=" + filepath.Join(root, "sys"), "--dev-root=" + filepath.Join(root, "dev"),
		"--kubelet-dir=" + dir, "--run-dir=" + n.runDir,
	}
	n.configure(t, "rdma")
	n.pods.begin("none")
	standin.Serve(t, dir, standin.Server{Pods: n.pods.list})
	n.kubelet = kubelettest.Start(t, dir)
	return n
}

// configure names the resource of all VFs.
func (n *node) configure(t testing.TB, name string) {
	t.Helper()
	content := `{"resourceList": [{"resourceName": "` + name + `", "selectors": {"vendors": ["15b3"], "isRdma": true}}]}`
	if err := os.WriteFile(filepath.Join(n.root, "config.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inMemory makes a folder in memory, where this computer has a place for it: as /run is.
func inMemory(t testing.TB) string {
	t.Helper()
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newPair is a node with both daemons, with more flags.
func newPair(t testing.TB, more ...string) *node {
	t.Helper()
	n := newNode(t, "oci-mi300x-derived", 4)
	n.flags = append(n.flags, more...)
	for _, name := range []string{"tandem-gpu", "tandem-rdma"} {
		daemon := n.start(t, name)
		t.Cleanup(func() { daemon.Stop(t, syscall.SIGINT) })
	}
	for range 2 {
		n.await(t)
	}
	return n
}

// await waits for a plugin to register and to list its devices.
func (n *node) await(t testing.TB) {
	t.Helper()
	plugin := kubelettest.Await(t, n.kubelet.Plugins)
	name := plugin.Request.GetResourceName()
	n.plugins[name], n.ids[name], n.health[name] = plugin, nil, map[string]string{}
	for _, d := range kubelettest.Await(t, plugin.Lists) {
		n.ids[name] = append(n.ids[name], d.GetID())
		n.health[name][d.GetID()] = d.GetHealth()
	}
}

// start starts a daemon, for the time of a test.
func (n *node) start(t testing.TB, name string) *programs.Process {
	t.Helper()
	flags := slices.Clone(n.flags)
	if name == "tandem-rdma" {
		flags = append(flags, "--config-file="+filepath.Join(n.root, "config.json"),
			"--resource-prefix=nvidia.com", "--devinfo-dir="+filepath.Join(n.root, "devinfo"))
	}
	daemon := programs.Start(t, programs.Command(t, name, flags...))
	n.daemons = append(n.daemons, daemon)
	return daemon
}

// admit gives a new pod a pair, in either order, and returns how long the two questions took.
func (n *node) admit(t testing.TB, round int) [2]time.Duration {
	t.Helper()
	n.pods.begin(fmt.Sprint("pod-", round))
	order := []string{gpus, vfs}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	var took [2]time.Duration
	for i, name := range order {
		began := time.Now()
		chosen, err := n.plugins[name].Prefer(t.Context(), n.ids[name], nil, 2)
		took[i] = time.Since(began)
		if err != nil || len(chosen) != 2 {
			t.Fatalf("prefer 2 of %s: %v, %v", name, chosen, err)
		}
		if _, err := n.plugins[name].Allocate(t.Context(), chosen...); err != nil {
			t.Fatal(err)
		}
		n.pods.give(name, chosen)
	}
	n.record(t, fmt.Sprint("uid-", round))
	return took
}

// record writes the kubelet's checkpoint, as the kubelet does when it is done with a container: the devices
// of the last pod, and all that there are.
func (n *node) record(t testing.TB, uid string) {
	t.Helper()
	var held []checkpoint.Allocation
	for _, d := range n.pods.last.GetContainers()[0].GetDevices() {
		held = append(held, checkpoint.Allocation{
			PodUID: uid, Container: "worker", Resource: d.GetResourceName(),
			Devices: map[string][]string{"0": d.GetDeviceIds()},
		})
	}
	if err := checkpoint.Write(n.dir, held, n.ids); err != nil {
		t.Fatal(err)
	}
}

// process is what a process takes of its node.
type process struct{ descriptors, threads, resident int } // resident in KiB

func (n *node) measure(t testing.TB) []process {
	t.Helper()
	var all []process
	for _, daemon := range n.daemons {
		descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", daemon.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, process{
			descriptors: len(descriptors), threads: daemon.Status(t, "Threads"), resident: daemon.Status(t, "VmRSS"),
		})
	}
	return all
}

// maxResident is what a daemon may keep in memory, in KiB; more than two thirds of it is its program, which
// the kernel can drop.
const maxResident = 44 << 10

// A daemon takes no more after many admissions than after a few.
func TestDaemonsStayFlat(t *testing.T) {
	n := newPair(t)
	rounds := scale.Rounds(*rounds)
	warm := max(rounds/10, 150) // by then the log of 256 decisions is full: an admission has two questions
	for round := range warm {
		n.admit(t, round)
	}
	before := n.measure(t)
	for round := range rounds {
		n.admit(t, warm+round)
	}
	for i, now := range n.measure(t) {
		t.Logf("%s after %d admissions: %d descriptors, %d threads, %.1f MiB resident; %d, %d, %.1f after %d",
			filepath.Base(n.daemons[i].Path), rounds,
			now.descriptors, now.threads, float64(now.resident)/1024, before[i].descriptors, before[i].threads,
			float64(before[i].resident)/1024, warm)
		if now.descriptors > before[i].descriptors+2 || now.threads > before[i].threads+5 ||
			now.resident > maxResident || now.resident > before[i].resident*5/4 {
			t.Errorf("%s grows from %+v to %+v", n.daemons[i].Path, before[i], now)
		}
	}
}

// TestDaemonsIdle: while nothing happens the daemons do next to nothing. The longer it looks, the more it can
// tell.
func TestDaemonsIdle(t *testing.T) {
	n := newPair(t)
	var busy []string
	for range windows {
		if busy = n.busyFor(t, *idle); len(busy) == 0 {
			return
		}
		t.Log(busy)
	}
	t.Errorf("while nothing happens, want %.1f %% of a core at most: %v", 100*maxIdle, busy)
}

// busyFor says which daemons are not idle for a time.
func (n *node) busyFor(t *testing.T, window time.Duration) (busy []string) {
	t.Helper()
	before := n.processorTimes(t)
	<-time.After(window)
	for i, now := range n.processorTimes(t) {
		took := now - before[i]
		share := float64(took) / float64(window)
		if said := fmt.Sprintf("%s, idle for %s: %s of processor time, %.4f %% of a core",
			filepath.Base(n.daemons[i].Path), window, took, 100*share); share > maxIdle {
			busy = append(busy, said)
		} else {
			t.Log(said)
		}
	}
	return busy
}

// windows is how often the daemons may turn out to be busy: on a busy machine a start takes its time.
const windows = 20

// maxIdle is the share of a core that a daemon may take while nothing happens.
const maxIdle = 0.001

// processorTimes are what the daemons' threads have run so far (Documentation/scheduler/sched-stats.rst,
// /proc/<pid>/schedstat).
func (n *node) processorTimes(t testing.TB) []time.Duration {
	t.Helper()
	var all []time.Duration
	for _, daemon := range n.daemons {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", daemon.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Skipf("this kernel counts no processor time of threads (CONFIG_SCHED_INFO): %v", err)
		}
		var sum time.Duration
		for _, thread := range threads {
			content, err := os.ReadFile(thread)
			if err != nil {
				t.Fatal(err)
			}
			ran, _, _ := strings.Cut(string(content), " ")
			nanoseconds, err := strconv.ParseInt(ran, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(nanoseconds)
		}
		all = append(all, sum)
	}
	return all
}

// BenchmarkStart measures the time from the start of a daemon to the kubelet's first list of devices, on the
// machines with the most of them.
func BenchmarkStart(b *testing.B) {
	for _, c := range []struct {
		daemon, machine string
		vfsPerPF        int
		resource        string
		devices         int
	}{
		{"tandem-gpu", "amd-mi300x-smc-thor2-cpx-derived", 0, gpus, 63},
		{"tandem-rdma", "oci-mi300x-derived", 127, vfs, 1016},
	} {
		b.Run("daemon="+c.daemon, func(b *testing.B) {
			n := newNode(b, c.machine, c.vfsPerPF)
			programs.Build(b, c.daemon)
			for b.Loop() {
				daemon := n.start(b, c.daemon)
				n.await(b)
				b.StopTimer()
				daemon.Stop(b, syscall.SIGINT)
				if got := len(n.ids[c.resource]); got != c.devices {
					b.Fatalf("%d devices, want %d", got, c.devices)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkVanished measures the time from the end of a VF, one of 1016, to the list in which the kubelet
// sees it unhealthy, and back, with all VFs under one name and with a name for each of the eight PFs. A tenth
// of a second of it is waited for more changes to come. What the daemon's processor time of it is does not
// depend on what else the computer does.
func BenchmarkVanished(b *testing.B) {
	n := newNode(b, "oci-mi300x-derived", 127)
	pfs, err := filepath.Glob(filepath.Join(n.root, "sys/bus/pci/devices/*/virtfn0"))
	if err != nil || len(pfs) != 8 {
		b.Fatal(pfs, err)
	}
	for _, names := range []int{1, len(pfs)} {
		b.Run(fmt.Sprint("names=", names), func(b *testing.B) {
			var list []string
			for i, pf := range pfs[:names] {
				selectors := `{"isRdma": true}`
				if names > 1 {
					selectors = `{"rootDevices": ["` + filepath.Base(filepath.Dir(pf)) + `"]}`
				}
				list = append(list, fmt.Sprintf(`{"resourceName": "vf%d", "selectors": %s}`, i, selectors))
			}
			if err := os.WriteFile(filepath.Join(n.root, "config.json"),
				[]byte(`{"resourceList": [`+strings.Join(list, ",")+`]}`), 0o600); err != nil {
				b.Fatal(err)
			}
			n.daemons = nil
			daemon := n.start(b, "tandem-rdma")
			defer daemon.Stop(b, syscall.SIGINT)
			for range names {
				n.await(b)
			}
			n.vanish(b, "nvidia.com/vf0")
		})
	}
}

// vanish has the first VF of a resource go and come back.
func (n *node) vanish(b *testing.B, resource string) {
	b.Helper()
	link := filepath.Join(n.root, "sys/bus/pci/devices", n.ids[resource][0])
	target, err := os.Readlink(link)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = os.Symlink(target, link) }() // for the next
	before := n.processorTimes(b)[0]
	for gone := true; b.Loop(); gone = !gone {
		if gone {
			err = os.Remove(link)
		} else {
			err = os.Symlink(target, link)
		}
		if err != nil {
			b.Fatal(err)
		}
		for list := kubelettest.Await(b,
			n.plugins[resource].Lists); (list[0].GetHealth() == v1beta1.Unhealthy) != gone; {
			list = kubelettest.Await(b, n.plugins[resource].Lists)
		}
	}
	b.ReportMetric(float64((n.processorTimes(b)[0]-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// BenchmarkRound measures a GetPreferredAllocation from the kubelet's call to the answer: through the
// plugin's socket, the coordination socket and PodResources, for the first and for the second half of a
// container. Every plugin is a process of its own.
func BenchmarkRound(b *testing.B) {
	n := newPair(b)
	n.admit(b, 1)
	var first, second []time.Duration
	for round := 0; b.Loop(); round++ {
		both := n.admit(b, round)
		first, second = append(first, both[0]), append(second, both[1])
	}
	report(b, "first-", first)
	report(b, "second-", second)
	report(b, "", slices.Concat(first, second))
}

// report gives the median and the 99th percentile of one question, in nanoseconds. Which is what their names
// begin with.
func report(b *testing.B, which string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), which+"p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), which+"p99-ns")
}
