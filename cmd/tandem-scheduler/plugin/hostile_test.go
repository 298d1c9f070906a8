// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// Limits of the cost of one object: to read it, and to request a verdict on each of a few pods. The largest
// valid objects need a fifth.
const (
	maxTime  = 10 * time.Second // of the process's CPUs
	maxAlloc = 2 << 30          // bytes, including freed ones
)

// cost returns the CPU time of this process, and the bytes that it has allocated.
func cost(t testing.TB) (time.Duration, uint64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), memory.TotalAlloc
}

// survive reads and queries an object like the scheduler, and fails on excessive cost or a panic. It reports
// whether the object is valid.
func survive(t testing.TB, what string, o *v1alpha1.NodeTopology) bool {
	t.Helper()
	time0, alloc0 := cost(t)
	object := newPublished(t, newReader(klog.Logger{}), o)
	understood := object.refusal() == nil
	pods := []*v1.Pod{server.Pod("small", 1, 1), server.Pod("large", 8, 8), server.Pod("gpus", 2, 0)}
	pods = append(pods, guaranteed("cpus", "3"))
	pods[0].Annotations = map[string]string{"tandem.dev/alignment": "required"}
	there := []*v1.Pod{server.Pod("pod", 1, 1), server.Pod("comes", 1, 0)}
	for _, pod := range pods {
		if object.refusal() != nil {
			break
		}
		request, err := hashRequest(pod)
		if err != nil {
			t.Fatal(err)
		}
		object.try(t.Context(), func() {
			info := on("a", there...)
			if s := object.observation(info); s.verdict(pod, request).Admitted {
				s.offer(pod, request)
			}
			object.node.State(func(types.UID) bool { return true }).Ask(pod)
		})
	}
	time1, alloc1 := cost(t)
	if took := time1 - time0; took > maxTime {
		t.Errorf("%s takes %v of CPU time", what, took)
	}
	if got := alloc1 - alloc0; got > maxAlloc {
		t.Errorf("%s allocates %d MiB", what, got>>20)
	}
	if refusal := object.refusal(); refusal != nil && strings.Contains(refusal.Error(), "panic") {
		t.Errorf("%s: %v", what, refusal)
	}
	if testing.Verbose() {
		t.Logf("%s: %v, %d MiB, refused: %v", what, time1-time0, (alloc1-alloc0)>>20, object.refusal())
	}
	return understood
}

// No object, whatever its content, costs the scheduler more time or memory than that of a large machine.
func TestHostileObjects(t *testing.T) {
	for what, c := range map[string]struct {
		spoil      func(*v1alpha1.Spec)
		understood bool // devices may be used all the same
	}{
		"40 NUMA nodes": {spoil: func(s *v1alpha1.Spec) {
			s.Resources[0] = v1alpha1.Resource{
				Name: server.GPU, Kind: v1alpha1.GPU, Devices: 64, Hints: map[string]v1alpha1.Set{},
			}
			s.Switches, s.NUMANodes = nil, nil
			for i := range 40 {
				s.Resources[0].Hints[fmt.Sprint(i)] = v1alpha1.SetOf(i)
				s.NUMANodes = append(s.NUMANodes, v1alpha1.NUMANode{Number: i})
			}
		}},
		"so many CPUs":      {func(s *v1alpha1.Spec) { s.NUMANodes[0].CPUs = "0-3000000" }, true},
		"far too many CPUs": {func(s *v1alpha1.Spec) { s.NUMANodes[0].CPUs = "0-9999999999" }, true},
		"CPUs of a pod":     {func(s *v1alpha1.Spec) { s.Held[0].Containers[0].CPUs = "0-9999999999" }, true},
		"reserved CPUs":     {func(s *v1alpha1.Spec) { s.Kubelet.ReservedSystemCPUs = "0-9999999999" }, true},
		"a core": {func(s *v1alpha1.Spec) {
			s.NUMANodes[0].Cores = []v1alpha1.Set{"0-9999999999"}
		}, true},
		"cores of the same CPUs": {func(s *v1alpha1.Spec) {
			for i := 2; i < 22; i++ {
				s.NUMANodes = append(s.NUMANodes, v1alpha1.NUMANode{
					Number: i, Cores: slices.Repeat([]v1alpha1.Set{"0-4095"}, v1alpha1.MaxCPUs),
				})
			}
		}, true},
		"functions of the same devices": {spoil: func(s *v1alpha1.Spec) {
			s.Resources[1].Devices = v1alpha1.MaxDevices / 2
			s.Resources[1].Functions = slices.Repeat([]v1alpha1.Set{"0-16383"}, v1alpha1.MaxFunctions/2)
			s.Resources[1].Addresses = nil
		}},
		"a long path": {spoil: func(s *v1alpha1.Spec) {
			s.Switches[0].Path = "pci" + strings.Repeat("0", 1<<20) + strings.Repeat("/0000:00:01.0", 30)
		}},
		"a set of sets": {spoil: func(s *v1alpha1.Spec) {
			s.Resources[0].Functions = make([]v1alpha1.Set, 1<<20)
		}},
		"memory of 64 NUMA nodes": {func(s *v1alpha1.Spec) {
			s.Kubelet.MemoryManagerPolicy = "Static"
			for i := 2; i < 64; i++ {
				s.NUMANodes = append(s.NUMANodes, v1alpha1.NUMANode{Number: i, Memory: map[string]v1alpha1.Memory{
					"memory": {Total: 1 << 40, Allocatable: 1 << 40},
				}})
			}
		}, true},
		"the largest machine": {largest, true},
		"the largest machine, best effort": {func(s *v1alpha1.Spec) {
			largest(s)
			s.Kubelet.TopologyManagerPolicy = "best-effort"
		}, true},
	} {
		o := withCPUs(server.Topology("a", 1, true))
		server.Hold(o, "pod", "0", "0")
		c.spoil(&o.Spec)
		if got := survive(t, what, o); got != c.understood {
			t.Errorf("%s: understood is %t", what, got)
		}
	}
}

// However many pods are on their way to the largest machine, a verdict takes a bounded time.
func TestManyOnTheirWayToTheLargestMachine(t *testing.T) {
	o := withCPUs(server.Topology("a", 1, true))
	largest(&o.Spec)
	o.Spec.Held = nil
	object := newPublished(t, newReader(klog.Logger{}), o)
	var there []*v1.Pod
	for i := range 6 {
		there = append(there, server.Pod(fmt.Sprint("comes-", i), i+1, i+1))
	}
	before, _ := cost(t)
	v := object.observation(on("a", there...)).verdict(server.Pod("new", 1, 1), "request")
	if v.Reason != overtaken {
		t.Errorf("verdict %+v", v)
	}
	if after, _ := cost(t); after-before > 5*time.Second {
		t.Errorf("%v of CPU time", after-before)
	}
}

// largest creates an object of maximum size.
func largest(s *v1alpha1.Spec) {
	s.Switches, s.NUMANodes, s.Held = nil, nil, nil
	for i := range v1alpha1.MaxDeviceNodes {
		s.NUMANodes = append(s.NUMANodes, v1alpha1.NUMANode{
			Number: i, CPUs: v1alpha1.Set(fmt.Sprintf("%d-%d", i*1024, i*1024+1023)),
		})
	}
	half := v1alpha1.MaxDevices / 2
	for i, each := range []int{half / v1alpha1.MaxPlaces, half / v1alpha1.MaxPlaces} {
		r := &s.Resources[i]
		r.Devices, r.Hints, r.Functions, r.Addresses = half, map[string]v1alpha1.Set{}, nil, nil
		for node := range v1alpha1.MaxDeviceNodes {
			r.Hints[fmt.Sprint(node)] = v1alpha1.Set(fmt.Sprintf("%d-%d", node*half/8, (node+1)*half/8-1))
		}
		for f := range v1alpha1.MaxFunctions / 2 {
			per := half / (v1alpha1.MaxFunctions / 2)
			r.Functions = append(r.Functions, v1alpha1.Set(fmt.Sprintf("%d-%d", f*per, (f+1)*per-1)))
			r.Addresses = append(r.Addresses, fmt.Sprintf("%04x:%02x:%02x.%d", f/128+1, f/4, i, f%4))
		}
		for at := range v1alpha1.MaxPlaces {
			if len(s.Switches) <= at {
				path := []string{fmt.Sprintf("pci0000:%02x", at)}
				for depth := range v1alpha1.MaxDepth - 1 {
					path = append(path, fmt.Sprintf("%04x:%02x:00.0", at+1, depth))
				}
				s.Switches = append(s.Switches, v1alpha1.Switch{
					Name: fmt.Sprint(at), Path: strings.Join(path, "/"), NUMA: new(at / 32),
					Devices: map[string]v1alpha1.Set{},
				})
			}
			s.Switches[at].Devices[r.Name] = v1alpha1.Set(fmt.Sprintf("%d-%d", at*each, (at+1)*each-1))
		}
	}
	for i := range 700 {
		s.Held = append(s.Held, v1alpha1.Held{UID: fmt.Sprint("pod-", i), Containers: []v1alpha1.Container{{
			Name: "app", Devices: map[string]v1alpha1.Set{server.GPU: v1alpha1.SetOf(i), server.VF: v1alpha1.SetOf(i)},
			CPUs: v1alpha1.SetOf(i + 100),
		}}})
	}
}

// FuzzObject modifies an object of a server, and reads and queries it.
func FuzzObject(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		seed := make([]byte, 8+i%24)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := withCPUs(server.Topology("a", 2, true))
		server.Hold(o, "pod", "0-1", "0,3")
		o.Spec.Held[0].Containers[0].CPUs = "1-3"
		o.Spec.Kubelet.MemoryManagerPolicy = "Static"
		for i := range o.Spec.NUMANodes {
			o.Spec.NUMANodes[i].Memory = map[string]v1alpha1.Memory{
				"memory": {Total: 2 << 40, SystemReserved: 1 << 30, Allocatable: 1 << 40},
			}
		}
		server.Spoil(&o.Spec, data)
		survive(t, "this object", o)
	})
}
