// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// recorded is the machine of the decisions in these tests.
const recorded = "oci-mi300x-derived"

// deviceAddresses returns the recorded machine with the addresses of its GPUs and NICs.
func deviceAddresses(t *testing.T) (tree *topology.Tree, gpus, nics []topology.Address) {
	t.Helper()
	tree, err := machines.Tree(recorded, 0)
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

// decide returns an answered question about a GPU and a NIC.
func decide(t *testing.T, tree *topology.Tree, gpus, nics []placement.Device) *decisionInput {
	t.Helper()
	request := placement.Request{
		GPUs: []placement.Half{{Count: 1, Free: gpus}}, VFs: []placement.Half{{Count: 1, Free: nics}},
		Spare: placement.Devices{GPUs: slices.Clone(gpus), VFs: slices.Clone(nics)},
	}
	choice, err := placement.Choose(tree, request)
	if err != nil {
		t.Fatal(err)
	}
	return &decisionInput{newDecision(&api.Decision{
		TimeUnixNano: 1, Asked: true, Resource: "nvidia.com/gpu", Size: 1, Chosen: []string{choice.GPUs[0].ID},
		Pairs: encodePairs(choice.Pairs), Reason: choice.Reason,
	}), tree, request, choice}
}

// offering makes lists of its own the free devices of the question.
func (q *decisionInput) offering(gpus, nics []placement.Device) *decisionInput {
	q.request.GPUs[0].Free, q.request.VFs[0].Free = slices.Clone(gpus), slices.Clone(nics)
	q.request.Spare = placement.Devices{GPUs: slices.Clone(gpus), VFs: slices.Clone(nics)}
	return q
}

// heap returns the live heap in bytes.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The size of a log depends neither on the number of devices nor of trees, with or without options. Without
// the bound, the lists of this log would take 125 MiB, and its trees twice mostBytes.
func TestLogIsBoundedInBytes(t *testing.T) {
	tree, gpus, nics := deviceAddresses(t)
	sys := machines.Sys(t, recorded, 0)
	read := func() *topology.Tree {
		another, err := topology.Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		return another
	}
	replicas, hcas := shareDevices(gpus, 1000), shareDevices(nics[:min(8, len(nics))], 500)
	few, fewNICs := shareDevices(gpus, 1), shareDevices(nics, 1)
	longLists := func() *decisionInput { return decide(t, tree, few, fewNICs).offering(replicas, hcas) }
	for name, c := range map[string]struct {
		next     func() *decisionInput
		computed bool // options are computed after each decision
	}{
		"long lists":  {longLists, false},
		"other trees": {func() *decisionInput { return decide(t, read(), few, fewNICs) }, false},
		"short lists": {func() *decisionInput { return decide(t, tree, few, fewNICs) }, true},
		"long names": {func() *decisionInput {
			q := decide(t, tree, few, fewNICs)
			q.decision.edit(func(m *api.Decision) { m.Reason = strings.Repeat("x", mostBytes/10) })
			return q
		}, true},
	} {
		var state committedState
		log, before := &state.history, heap()
		for range maxDecisions + 10 {
			log.addQuestion(c.next())
			if c.computed {
				state.addOptions()
			}
			if got := log.bytes(); got > mostBytes {
				t.Fatalf("%s: %d bytes by its own count", name, got)
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
		state.addOptions()
		var dropped int
		for _, m := range log.all() {
			if len(m.GetOptions()) == 0 {
				t.Fatalf("%s: no options: %v", name, m)
			}
			if strings.Contains(m.String(), resultDropped) {
				dropped++
			}
		}
		if c.computed != (dropped == 0) || dropped > 0 && dropped < maxDecisions-maxInputs {
			t.Errorf("%s: what each switch alone would have given is dropped of %d decisions", name, dropped)
		}
		runtime.KeepAlive(log)
	}
}

// Without results, the options have the numbers of free and taken devices, and mark the results as dropped.
func TestShortenedDecision(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := deviceAddresses(t)
	q := decide(t, tree, shareDevices(gpus, 1), shareDevices(nics, 1))
	whole, short := q.options(true), q.options(false)
	if len(short) == 0 || len(short) != len(whole) {
		t.Fatalf("shortened to %v", short)
	}
	for i, o := range short {
		if o.GetResult() != resultDropped {
			t.Errorf("%s: %q", o.GetSwitch(), o.GetResult())
		}
		o.Result = whole[i].GetResult()
	}
	if diff := cmp.Diff(whole, short, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A message that a reader has does not change with its decision.
func TestMessagesAreImmutable(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := deviceAddresses(t)
	c := &committedState{}
	c.history.isHeld = func(string, string, string) bool { return true }
	c.history.addQuestion(decide(t, tree, shareDevices(gpus, 1), shareDevices(nics, 1)))
	var had, copied []*api.Decision
	keep := func() {
		m := c.history.all()[0]
		had, copied = append(had, m), append(copied, proto.CloneOf(m))
	}
	keep()
	c.addOptions()
	keep()
	owner := &api.Owner{Pod: "a"}
	c.history.recordAllocate(&api.Decision{
		Asked: true, Resource: had[0].GetResource(), Allocated: []string{"x"}, Container: owner, PodUid: "u",
	})
	keep()
	if diff := cmp.Diff(copied, had, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if last := had[2]; len(last.GetOptions()) == 0 || !last.GetHeld() || last.GetContainer().GetUid() != "u" {
		t.Errorf("at last %v", last)
	}
}

// The index refers only to decisions in the log, for repeated as well as for distinct devices.
func TestDecisionsAreForgotten(t *testing.T) {
	t.Parallel()
	var d decisionLog
	for i := range 4 * maxDecisions {
		d.recordAllocate(&api.Decision{Resource: "amd.com/gpu", Allocated: []string{fmt.Sprint("gpu-", i%7)}})
		d.recordAllocate(&api.Decision{Resource: "nvidia.com/vf", Allocated: []string{fmt.Sprint("vf-", i)}})
		for first, e := range d.newest {
			if !slices.Contains(d.entries, e) || e.GetAllocated()[0] != first.ID {
				t.Fatalf("after %d decisions %v is that of %v", 2*i, first, e.GetAllocated())
			}
		}
	}
	if len(d.entries) != maxDecisions || len(d.newest) != 7+maxDecisions/2 {
		t.Errorf("%d decisions, %d of them the newest of a device", len(d.entries), len(d.newest))
	}
}

// TestOptionsAreComputedOnce: queries at the same time compute the options of a decision once, however many
// there are. 32 queries of one client may be in progress (maxCalls in package coordination).
func TestOptionsAreComputedOnce(t *testing.T) {
	tree, gpus, nics := deviceAddresses(t)
	replicas, hcas := shareDevices(gpus, 50), shareDevices(nics[:min(8, len(nics))], 25)
	allocated := func(queries int) int {
		var state committedState
		for range 8 {
			q := decide(t, tree, shareDevices(gpus, 1), shareDevices(nics, 1))
			state.history.addQuestion(q.offering(replicas, hcas))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		for range queries {
			all.Go(state.addOptions)
		}
		all.Wait()
		runtime.ReadMemStats(&after)
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	one, many := allocated(1), allocated(32)
	t.Logf("%d MiB for one query, %d MiB for 32", one>>20, many>>20)
	if many > 4*one {
		t.Errorf("32 queries at the same time allocate %d MiB, one allocates %d MiB", many>>20, one>>20)
	}
}
