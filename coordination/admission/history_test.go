// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// deviceAddresses returns a recorded machine with the addresses of its GPUs and NICs.
func deviceAddresses(t *testing.T) (tree *topology.Tree, gpus, nics []topology.Address) {
	t.Helper()
	tree, err := machines.Tree("oci-mi300x-derived", 0)
	if err != nil {
		t.Fatal(err)
	}
	for d := range tree.Devices() {
		switch {
		case d.Class.IsGPU():
			gpus = append(gpus, d.Address)
		case d.Class.IsNetwork():
			nics = append(nics, d.Address)
		}
	}
	return tree, gpus, nics
}

// shareDevices returns devices: each function with that many replicas.
func shareDevices(functions []topology.Address, often int) []placement.Device {
	var devices []placement.Device
	for _, address := range functions {
		for n := range often {
			devices = append(devices, placement.Device{
				ID: fmt.Sprintf("%s::%d", address, n), Address: address, Degraded: n == 1,
			})
		}
	}
	return devices
}

// decide returns the message of a decision about a GPU and a NIC, and its question.
func decide(t *testing.T, tree *topology.Tree, gpus, nics []placement.Device) (*api.Decision, decisionInput) {
	t.Helper()
	request := placement.Request{
		GPUs: []placement.Half{{Count: 1, Free: gpus}}, VFs: []placement.Half{{Count: 1, Free: nics}},
		Spare: placement.Devices{GPUs: slices.Clone(gpus), VFs: slices.Clone(nics)},
	}
	choice, err := placement.Choose(tree, request)
	if err != nil {
		t.Fatal(err)
	}
	return &api.Decision{
		TimeUnixNano: 1, Asked: true, Resource: "nvidia.com/gpu", Size: 1, Chosen: []string{choice.GPUs[0].ID},
	}, decisionInput{tree, request, choice}
}

// heap returns the live heap in bytes.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The size of a log depends neither on the number of devices nor on the number of trees, whether the file of
// the next server is written or not. Without the bound, the lists of this log would take 250 MiB, and its
// trees twice mostBytes.
func TestLogIsBoundedInBytes(t *testing.T) {
	tree, gpus, nics := deviceAddresses(t)
	read := func() *topology.Tree {
		tree, _, _ := deviceAddresses(t)
		return tree
	}
	replicas, hcas := shareDevices(gpus, 2000), shareDevices(nics[:min(8, len(nics))], 1000)
	few, fewNICs := shareDevices(gpus, 1), shareDevices(nics, 1)
	longLists := func() *decision {
		m, q := decide(t, tree, few, fewNICs)
		q.request.GPUs[0].Free, q.request.VFs[0].Free = slices.Clone(replicas), slices.Clone(hcas)
		q.request.Spare = placement.Devices{GPUs: slices.Clone(replicas), VFs: slices.Clone(hcas)}
		return newDecision(m, q, nil, "")
	}
	for name, c := range map[string]struct {
		next  func() *decision
		saved bool // the file is written after each decision
	}{
		"long lists": {longLists, false},
		"other trees": {func() *decision {
			m, q := decide(t, read(), few, fewNICs)
			return newDecision(m, q, nil, "")
		}, false},
		"short lists": {func() *decision {
			m, q := decide(t, tree, few, fewNICs)
			return newDecision(m, q, nil, "")
		}, true},
		"long names": {func() *decision {
			m, q := decide(t, tree, few, fewNICs)
			m.MustInclude = []string{strings.Repeat("x", mostBytes/10)}
			return newDecision(m, q, nil, "")
		}, true},
	} {
		var log decisionLog
		before := heap()
		for range maxDecisions + 10 {
			log.add(c.next())
			if got := log.bytes(); got > mostBytes {
				t.Fatalf("%s: %d bytes by its own count", name, got)
			}
			if c.saved {
				saveDecisions(log.all())
			}
		}
		after := heap() - before
		t.Logf("%s: %d decisions, %.1f MiB live, %.1f MiB by the log's count", name, len(log.entries),
			float64(after)/(1<<20), float64(log.bytes())/(1<<20))
		if after > mostBytes*3/2 {
			t.Errorf("%s: %d bytes are live, more than %d", name, after, mostBytes)
		}
		if name != "long names" && len(log.entries) != maxDecisions {
			t.Errorf("%s: %d decisions", name, len(log.entries))
		}
		dropped := slices.ContainsFunc(log.all(), func(e decision) bool {
			return strings.Contains(e.encode().String(), resultDropped)
		})
		if dropped == c.saved {
			t.Errorf("%s: what each switch alone would have given is dropped: %t", name, dropped)
		}
		runtime.KeepAlive(log)
	}
}

// A shortened decision keeps the numbers of free and taken devices and marks the results as dropped.
func TestShortenedDecision(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := deviceAddresses(t)
	made := func() *decision {
		m, q := decide(t, tree, shareDevices(gpus, 1), shareDevices(nics, 1))
		return newDecision(m, q, nil, "")
	}
	whole, e := made().encode(), made()
	for range 2 {
		e.message.shorten()
	}
	short := e.encode()
	if len(short.GetOptions()) == 0 || len(short.GetPairs()) != 1 || e.message.input != nil {
		t.Errorf("shortened to %v", short)
	}
	for i, o := range short.GetOptions() {
		if o.GetResult() != resultDropped {
			t.Errorf("%s: %q", o.GetSwitch(), o.GetResult())
		}
		o.Result = whole.GetOptions()[i].GetResult()
	}
	if diff := cmp.Diff(whole, short, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A decision that is being completed is neither waited for nor shortened by the next decision.
func TestDecisionBeingCompleted(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := deviceAddresses(t)
	var log decisionLog
	for range 2 {
		m, q := decide(t, tree, shareDevices(gpus, 1), shareDevices(nics, 1))
		log.add(newDecision(m, q, nil, ""))
	}
	first := log.entries[0].message
	first.mu.Lock()
	first.shorten()
	if log.bytes() == 0 || first.input == nil {
		t.Error("the input is dropped while it is used")
	}
	first.mu.Unlock()
}

// The index refers only to decisions in the log, for repeated as well as for distinct devices.
func TestDecisionsAreForgotten(t *testing.T) {
	t.Parallel()
	var d decisionLog
	for i := range 4 * maxDecisions {
		at := time.Unix(int64(i), 0)
		d.recordAllocate(answeredAllocate{at: at, resource: "amd.com/gpu", ids: []string{fmt.Sprint("gpu-", i%7)}})
		d.recordAllocate(answeredAllocate{at: at, resource: "nvidia.com/vf", ids: []string{fmt.Sprint("vf-", i)}})
		for first, e := range d.newest {
			if !slices.Contains(d.entries, e) || e.allocated[0] != first.ID {
				t.Fatalf("after %d decisions %v is that of %v", 2*i, first, e.allocated)
			}
		}
	}
	if len(d.entries) != maxDecisions || len(d.newest) != 7+maxDecisions/2 {
		t.Errorf("%d decisions, %d of them the newest of a device", len(d.entries), len(d.newest))
	}
}
