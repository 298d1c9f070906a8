// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// twoNodes has eight GPUs and eight VFs, four of each on NUMA nodes 0 and 1, and four VFs without a NUMA
// node: GPUs 0-7, VFs 64-71, other VFs 128-131.
func twoNodes() *Devices {
	announce := func(name string, kind model.Kind, count int, hinted bool) model.Resource {
		a := model.Resource{Name: name, Kind: kind}
		for i := range count {
			d := model.Device{Device: placement.Device{ID: fmt.Sprint(name, i)}}
			if hinted {
				d.NUMA = topology.Node(2 * i / count)
			}
			a.Devices = append(a.Devices, d)
		}
		return a
	}
	return NewDevices([]model.Resource{
		announce("gpu", model.GPU, 8, true), announce("vf", model.VF, 8, true),
		announce("rail", model.VF, 4, false),
	})
}

const (
	gpu = iota
	vf
	rail
)

// recorder writes down what an admission asks for. It prefers the highest devices, as many as answer says.
type recorder struct {
	answer  int
	refuses int // the container whose devices a plugin refuses
	said    []string
}

func (r *recorder) Hints(int) []model.Hints {
	return []model.Hints{{{Nodes: 1, Preferred: true}}}
}

func (r *recorder) Prefer(container int, q Question) Set {
	r.note("ask %d: %d of %v, must %v", container, q.Size, numbers(q.Available()), numbers(q.Must))
	answer := make(Set, len(q.Free))
	for _, i := range slices.Backward(numbers(q.Free)) {
		if answer.Len() < r.answer {
			answer.Insert(i)
		}
	}
	return answer
}

func (r *recorder) Pick(of Set, count int) Set {
	r.note("pick %d of %v", count, numbers(of))
	return of.Lowest(count)
}

func (r *recorder) Allocate(container int, best model.Hint, devices Set) error {
	r.note("allocate %d: %v on %v", container, numbers(devices), best.Nodes.Numbers())
	if container == r.refuses-1 {
		return errors.New("refused")
	}
	return nil
}

func (r *recorder) note(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func numbers(of Set) []int {
	var list []int
	of.Each(func(i int) { list = append(list, i) })
	return list
}

func setOf(n *Devices, devices ...int) Set {
	s := n.NewSet()
	for _, i := range devices {
		s.Insert(i)
	}
	return s
}

func admission(n *Devices, policy model.Policy, containers ...model.Container) *Admission {
	healthy := n.OfKind[model.GPU].Clone()
	healthy.Include(n.OfKind[model.VF])
	return &Admission{
		Node: n, Kubelet: model.TopologyManager{Rule: model.Rule{Policy: policy, Machine: 3}},
		Containers: containers,
		Healthy:    healthy, Taken: n.NewSet(), Reusable: n.NewSet(),
	}
}

// pod has containers in the order of admission.
type pod = []model.Container

// of returns a container with requests, each a resource and a count.
func of(role model.Role, requests ...int) model.Container {
	c := model.Container{Role: role}
	for i := 0; i < len(requests); i += 2 {
		c.Requests = append(c.Requests, model.Request{Resource: requests[i], Count: requests[i+1]})
	}
	return c
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	n := twoNodes()
	for _, c := range []struct {
		name       string
		policy     model.Policy
		containers []model.Container
		taken      []int
		answer     int
		want       string
	}{
		{"a choice on the node", model.Restricted, pod{of(model.App, gpu, 2)}, nil, 2,
			"ask 0: 2 of [0 1 2 3], must []; allocate 0: [2 3] on [0]"},
		{"no choice", model.Restricted, pod{of(model.App, gpu, 2)}, []int{0, 1}, 2,
			"allocate 0: [2 3] on [0]"},
		{"more than the node of its CPUs has", model.BestEffort, pod{of(model.App, gpu, 3)}, []int{0, 1}, 1,
			"ask 0: 3 of [2 3 4 5 6 7], must [2 3]; allocate 0: [2 3 7] on [0]"},
		{"no NUMA nodes", model.Restricted, pod{of(model.App, rail, 4)}, nil, 4,
			"ask 0: 4 of [128 129 130 131], must []; allocate 0: [128 129 130 131] on []"},
		{"short answer", model.Restricted, pod{of(model.App, gpu, 3)}, nil, 1,
			"ask 0: 3 of [0 1 2 3], must []; pick 2 of [0 1 2]; allocate 0: [0 1 3] on [0]"},
		{"short answer beyond the node", model.PolicyNone, pod{of(model.App, gpu, 3)}, []int{1, 2, 3, 4}, 0,
			"ask 0: 3 of [0 5 6 7], must []; pick 3 of [0 5 6 7]; allocate 0: [0 5 6] on []"},
		{"reuse", model.Restricted,
			pod{of(model.Init, gpu, 1), of(model.App, gpu, 2), of(model.App, gpu, 1)}, nil, 2,
			"ask 0: 1 of [0 1 2 3], must []; pick 1 of [2 3]; allocate 0: [2] on [0]; " +
				"ask 1: 2 of [0 1 2 3], must [2]; pick 1 of [1 3]; allocate 1: [1 2] on [0]; " +
				"ask 2: 1 of [0 3], must []; pick 1 of [0 3]; allocate 2: [0] on [0]"},
		{"more to reuse than is needed", model.Restricted,
			pod{of(model.Init, gpu, 3), of(model.App, gpu, 2)}, nil, 3,
			"ask 0: 3 of [0 1 2 3], must []; allocate 0: [1 2 3] on [0]; " +
				"pick 2 of [1 2 3]; allocate 1: [1 2] on [0]"},
		{"sidecar", model.Restricted,
			pod{of(model.Sidecar, gpu, 1), of(model.App, gpu, 1)}, nil, 1,
			"ask 0: 1 of [0 1 2 3], must []; allocate 0: [3] on [0]; " +
				"ask 1: 1 of [0 1 2], must []; allocate 1: [2] on [0]"},
		{"without devices", model.Restricted, pod{of(model.App)}, nil, 1, ""},
	} {
		r := &recorder{answer: c.answer}
		a := admission(n, c.policy, c.containers...)
		a.Others, a.Taken, a.Managed = r, setOf(n, c.taken...), strings.Contains(c.name, "CPUs")
		if refusal := a.Admit(); refusal != nil {
			t.Errorf("%s: %+v", c.name, refusal)
		}
		if got := strings.Join(r.said, "; "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	n := twoNodes()
	one := of(model.App, gpu, 1, vf, 1)
	for name, c := range map[string]struct {
		containers []model.Container
		change     func(*Admission)
		want       string
	}{
		"NUMA nodes": {pod{one, of(model.App, gpu, 5, vf, 1)}, nil,
			"container 1, shortage false, error <nil>"},
		"scope pod": {pod{of(model.App, gpu, 4, vf, 1), of(model.Sidecar, gpu, 1)},
			func(a *Admission) { a.Kubelet.ScopePod = true }, "container -1, shortage false, error <nil>"},
		"too few": {pod{of(model.App, rail, 5)}, nil, "container 0, shortage true, error <nil>"},
		"none is healthy": {pod{of(model.App, rail, 0)},
			func(a *Admission) { a.Healthy.DeleteRange(128, 131) }, "container 0, shortage true, error <nil>"},
		"plugin": {pod{one, one}, func(a *Admission) { a.Others = &recorder{answer: 1, refuses: 2} },
			"container 1, shortage false, error refused"},
	} {
		a := admission(n, model.Restricted, c.containers...)
		a.Others = &recorder{answer: 1}
		if c.change != nil {
			c.change(a)
		}
		refusal := a.Admit()
		if refusal == nil {
			t.Errorf("%s: admitted", name)
			continue
		}
		got := fmt.Sprintf("container %d, shortage %t, error %v", refusal.Container, refusal.Shortage != nil,
			refusal.Err)
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Under scope pod an init container runs next to the sidecars before it, and before the app containers.
func TestTotal(t *testing.T) {
	t.Parallel()
	sidecar, app := of(model.Sidecar, gpu, 2), of(model.App, gpu, 1)
	for name, c := range map[string]struct {
		containers []model.Container
		want       int
	}{
		"init container after a sidecar":  {pod{sidecar, of(model.Init, gpu, 4), app}, 6},
		"init container before a sidecar": {pod{of(model.Init, gpu, 4), sidecar, app}, 4},
		"app containers with a sidecar":   {pod{sidecar, app, app}, 4},
	} {
		if got := model.Total(c.containers); !slices.Equal(got, of(model.App, gpu, c.want).Requests) {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
	}
}

// TestVerdictOnly expects that a verdict chooses no devices for the last container.
func TestVerdictOnly(t *testing.T) {
	t.Parallel()
	one := of(model.App, gpu, 1)
	r := &recorder{answer: 1}
	a := admission(twoNodes(), model.Restricted, one, one, model.Container{})
	a.Others, a.VerdictOnly = r, true
	if refusal := a.Admit(); refusal != nil {
		t.Fatalf("%+v", refusal)
	}
	want := "ask 0: 1 of [0 1 2 3], must []; allocate 0: [3] on [0]; allocate 1: [] on [0]"
	if got := strings.Join(r.said, "; "); got != want {
		t.Errorf("got %s", got)
	}
}

// TestRanges compares InsertRange and DeleteRange with one device after the other.
func TestRanges(t *testing.T) {
	t.Parallel()
	for first := range 130 {
		for last := first; last < 130; last++ {
			filled, added := make(Set, 3), make(Set, 3)
			filled.InsertRange(first, last)
			for i := first; i <= last; i++ {
				added.Insert(i)
			}
			if !slices.Equal(filled, added) {
				t.Fatalf("%d-%d is %x", first, last, filled)
			}
			full := Set{^uint64(0), ^uint64(0), ^uint64(0)}
			full.DeleteRange(first, last)
			filled.Include(full)
			if full.Common(added) != 0 || filled.Len() != 192 {
				t.Fatalf("without %d-%d there are %x", first, last, full)
			}
		}
	}
}
