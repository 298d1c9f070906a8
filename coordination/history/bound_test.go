// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// machine returns a recorded machine with the addresses of its GPUs and NICs.
func machine(t *testing.T) (tree *topology.Tree, gpus, nics []topology.Address) {
	t.Helper()
	recorded, err := machines.Load("oci-mi300x-derived", 0)
	if err != nil {
		t.Fatal(err)
	}
	if tree, err = topology.Read(recorded.FS()); err != nil {
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

// shared returns devices: each function with that many replicas.
func shared(functions []topology.Address, often int) []placement.Device {
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

// asked returns a decision about a GPU and a NIC.
func asked(t *testing.T, tree *topology.Tree, gpus, nics []placement.Device) *Decision {
	t.Helper()
	request := placement.Request{
		GPUs: []placement.Half{{Count: 1, Free: gpus}}, VFs: []placement.Half{{Count: 1, Free: nics}},
		Spare: placement.Devices{GPUs: slices.Clone(gpus), VFs: slices.Clone(nics)},
	}
	choice, err := placement.Choose(tree, request)
	if err != nil {
		t.Fatal(err)
	}
	return &Decision{
		At: time.Unix(1, 0), HasQuestion: true, Resource: "nvidia.com/gpu", Size: 1, Tree: tree, Request: request,
		Choice: choice, Chosen: []string{choice.GPUs[0].ID},
	}
}

// A compacted request has the same message as the whole request.
func TestFoldedRequestTellsTheSame(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := machine(t)
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		replicas, hcas := shared(gpus, 8), shared(nics, 3)
		shuffled := func(list []placement.Device) []placement.Device {
			list = slices.Clone(list)
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			return list
		}
		replicas, hcas = shuffled(replicas), shuffled(hcas)
		n, m := 4+random.IntN(len(replicas)-4), 4+random.IntN(len(hcas)-4)
		request := placement.Request{
			GPUs:  []placement.Half{{Count: 1 + random.IntN(4), Held: replicas[:1], Free: replicas[1:n]}},
			VFs:   []placement.Half{{Count: random.IntN(3), Free: hcas[:m]}},
			Spare: placement.Devices{GPUs: shuffled(replicas[:n+(len(replicas)-n)/2]), VFs: shuffled(hcas[:m])},
			Taken: placement.Devices{GPUs: replicas[n+(len(replicas)-n)/2:], VFs: hcas[m:]},
		}
		choice, err := placement.Choose(tree, request)
		if err != nil {
			t.Fatal(err)
		}
		whole := &Decision{HasQuestion: true, Tree: tree, Request: request, Choice: choice}
		short := &Decision{
			HasQuestion: true, Tree: tree, Choice: choice, compact: newCompactRequest(request, choice),
		}
		if diff := cmp.Diff(whole.encode(true), short.encode(true), protocmp.Transform()); diff != "" {
			t.Errorf("of %+v (-whole +folded):\n%s", request, diff)
		}
		if len(whole.encode(true).GetOptions()) == 0 {
			t.Error("nothing is told")
		}
	}
}

// heap returns the live heap in bytes.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The size of a log depends neither on the number of devices nor on the number of trees. Without the bound,
// the lists of this log would take 250 MiB, and its trees twice mostBytes.
func TestLogIsBoundedInBytes(t *testing.T) {
	tree, gpus, nics := machine(t)
	read := func() *topology.Tree {
		tree, _, _ := machine(t)
		return tree
	}
	replicas, hcas := shared(gpus, 2000), shared(nics[:min(8, len(nics))], 1000)
	few, fewNICs := shared(gpus, 1), shared(nics, 1)
	for name, next := range map[string]func() *Decision{
		"long lists": func() *Decision {
			d := asked(t, tree, few, fewNICs)
			d.Request.GPUs[0].Free, d.Request.VFs[0].Free = slices.Clone(replicas), slices.Clone(hcas)
			d.Request.Spare = placement.Devices{GPUs: slices.Clone(replicas), VFs: slices.Clone(hcas)}
			return d
		},
		"other trees": func() *Decision { return asked(t, read(), few, fewNICs) },
		"long names": func() *Decision {
			d := asked(t, tree, few, fewNICs)
			d.MustInclude = []string{strings.Repeat("x", mostBytes/10)}
			return d
		},
	} {
		var log Log
		before := heap()
		for range Most + 10 {
			log.Add(next())
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
		if name != "long names" && len(log.entries) != Most {
			t.Errorf("%s: %d decisions", name, len(log.entries))
		}
		if name == "long lists" && slices.ContainsFunc(log.entries, func(e *Decision) bool { return e.shortened }) {
			t.Errorf("%s: it is resultDropped what each switch alone would have given", name)
		}
		runtime.KeepAlive(log)
	}
}

// A shortened decision keeps the numbers of free and taken devices and marks the results as dropped.
func TestShortenedDecision(t *testing.T) {
	t.Parallel()
	tree, gpus, nics := machine(t)
	e := asked(t, tree, shared(gpus, 1), shared(nics, 1))
	whole := e.encode(true)
	var log Log
	log.Add(e)
	for range 2 {
		e.shorten()
	}
	short := e.Encode()
	if len(short.GetOptions()) == 0 || len(short.GetPairs()) != 1 || e.Tree != nil {
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
