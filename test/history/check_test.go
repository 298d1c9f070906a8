// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// machine is oci-mi300x-derived: near pairs are a GPU and a VF of one index.
func machine(t *testing.T) history.Machine {
	t.Helper()
	_, tree := machines.Read(t, "oci-mi300x-derived", 1)
	m := history.Machine{
		Tree: tree, Devices: map[string][]device.Device{},
		Kinds: map[string]device.Kind{gpus: device.GPU, vfs: device.VF},
	}
	for d := range tree.Devices() {
		one := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		switch {
		case d.Class.IsGPU() && d.Vendor == 0x1002:
			m.Devices[gpus] = append(m.Devices[gpus], one)
		case d.IsVF():
			m.Devices[vfs] = append(m.Devices[vfs], one)
		}
	}
	return m
}

// near returns a GPU and a VF of one switch; different numbers are different switches.
func near(t *testing.T, m history.Machine, number int) (gpu, vf string) {
	t.Helper()
	g := m.Devices[gpus][number]
	for _, v := range m.Devices[vfs] {
		if m.Tree.Distance(g.Address, v.Address).Level == topology.PIX {
			return g.ID, v.ID
		}
	}
	t.Fatalf("no VF near %s", g.ID)
	return "", ""
}

// script writes a history by hand.
type script struct {
	*history.Recorder
	all     map[string][]string // IDs by resource
	request map[string]int      // of each container
}

func newScript(m history.Machine) script {
	s := script{
		Recorder: history.New(1000, history.Steps()), all: map[string][]string{},
		request: map[string]int{gpus: 1, vfs: 1},
	}
	for name, devices := range m.Devices {
		for _, d := range devices {
			s.all[name] = append(s.all[name], d.ID)
		}
	}
	return s
}

func event(kind history.Kind, pod string) history.Event {
	return history.Event{Kind: kind, Pod: "team/" + pod, UID: "uid-" + pod, Container: "c"}
}

// arrive lets the kubelet begin to admit a pod of one container.
func (s script) arrive(pod string, required bool) {
	e := event(history.Arrival, pod)
	e.Spec = &history.Spec{Required: required, Containers: []history.Container{{Name: "c", Requests: s.request}}}
	s.Note(e)
	s.Note(event(history.Alignment, pod))
}

// ask lets the kubelet offer all devices but some.
func (s script) ask(pod, resource, answer string, not ...string) {
	e := event(history.Question, pod)
	e.Resource, e.Devices, e.Offer = resource, []string{answer}, &history.Offer{Size: 1}
	e.Offer.Available = without(s.all[resource], not...)
	s.Note(e)
}

// allocate lets the kubelet allocate a device. A text is Tandem's refusal.
func (s script) allocate(pod, resource, id, refusal string) {
	e := event(history.Allocation, pod)
	e.Resource, e.Devices, e.Refusal = resource, []string{id}, refusal
	s.Note(e)
}

func (s script) verdict(pod, refusal string) {
	e := event(history.Verdict, pod)
	e.Refusal = refusal
	s.Note(e)
}

func without(list []string, not ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(not, id) })
}

// breachOf returns the promise that a history breaks, or "".
func breachOf(t *testing.T, s script, m history.Machine, rules history.Rules) history.Promise {
	t.Helper()
	err := history.Check(s.History(), m, rules)
	var breach *history.Breach
	if err != nil && !errors.As(err, &breach) {
		t.Fatal(err)
	}
	if breach == nil {
		return ""
	}
	t.Log(breach)
	return breach.Promise
}
