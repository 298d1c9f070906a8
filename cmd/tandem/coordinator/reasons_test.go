// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
)

// given is a device of a switch that a pod of namespace team has; "" for nobody.
func given(id, at, pod string, numa uint32) *api.DeviceStatus {
	d := &api.DeviceStatus{Device: &api.Device{Id: id, Address: id, Numa: &numa, Healthy: true}, Switch: at}
	if pod != "" {
		d.Allocated, d.Owner = true, &api.Owner{Namespace: "team", Pod: pod, Container: "c"}
	}
	return d
}

// near and off are the switches of train's two GPUs.
const near, off = "0000:08:00.0", "0000:2c:00.0"

// node has two GPUs of train's and its VFs, of which the second one is far, and VFs beside the second GPU.
func node(beside ...*api.DeviceStatus) Status {
	return NewStatus(&api.StatusResponse{Resources: []*api.Resource{
		{Name: "amd.com/gpu", Kind: "gpu", Connected: true, Devices: []*api.DeviceStatus{
			given("0000:11:00.0", near, "train", 0), given("0000:2f:00.0", off, "train", 0),
		}},
		{Name: "tandem.dev/rdma_vf", Kind: "vf", Connected: true, Devices: append([]*api.DeviceStatus{
			given("0000:0c:00.1", near, "train", 0), given("0000:9c:00.1", "0000:9a:00.0", "train", 1),
		}, beside...)},
	}})
}

// Of a degraded container it is said which GPU has no VF on its switch, on which NUMA node that is, who has
// the VFs there, and what to do.
func TestReasons(t *testing.T) {
	t.Parallel()
	sick := given("0000:30:00.1", off, "", 0)
	sick.Device.Healthy = false
	for name, c := range map[string]struct {
		beside []*api.DeviceStatus
		line   string // of the GPU
		next   string
	}{
		"another pod has them": {
			[]*api.DeviceStatus{given("0000:30:00.1", off, "other", 0), given("0000:30:00.2", off, "other", 0)},
			"0000:2f:00.0  0000:2c:00.0  0     0/2           team/other/c",
			"end team/other/c, which has VFs of switch 0000:2c:00.0, then create team/train again"},
		"one is free by now": {
			[]*api.DeviceStatus{given("0000:30:00.1", off, "other", 0), given("0000:30:00.2", off, "", 0)},
			"0000:2f:00.0  0000:2c:00.0  0     1/2           team/other/c",
			"VFs are free on these switches now: create team/train again"},
		"there are none": {nil,
			"0000:2f:00.0  0000:2c:00.0  0     -             -",
			`switch 0000:2c:00.0 has no VF that a plugin offers: see "tandem doctor", or ask for fewer GPUs`},
		"they are broken": {[]*api.DeviceStatus{sick},
			"0000:2f:00.0  0000:2c:00.0  0     0/1           -",
			`the VFs of switch 0000:2c:00.0 are unhealthy: see "tandem status -o wide"`},
	} {
		want := "team/train/c is degraded: for 1 GPU there is no VF of its own on its switch\n   next: " + c.next + `

   GPU           SWITCH        NUMA  VFS FREE NOW  VFS HELD BY
   ` + c.line + `
   VF 0000:9c:00.1 is on switch 0000:9a:00.0
`
		var got cli.Text
		node(c.beside...).writeReasons(&got, "team/train/c", []Decision{{Container: "team/train/c"}})
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Free VFs below the host bridge of a GPU are not near: to create the pod again would not help.
func TestNextWithoutASwitch(t *testing.T) {
	t.Parallel()
	flat := apart{gpu: Device{ID: "0000:05:00.0", Switch: "pci0000:00"}, free: make([]Device, 7), all: 8}
	const want = "GPU 0000:05:00.0 is on no switch (pci0000:00), so that no VF is near; a topology file has " +
		"the switches of a guest"
	if got := nextStep("team/train/c", []apart{flat}, 1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func pair(gpu, vf string, distance topology.Level) machine.Pair {
	return machine.Pair{GPU: gpu, VF: vf, Distance: distance}
}

// A container that was refused holds nothing: its last choice says which GPUs it would have had.
func TestReasonsOfARefusal(t *testing.T) {
	t.Parallel()
	s := node(given("0000:30:00.1", off, "other", 0))
	refused := []Decision{{Container: "team/strict/c", Refusal: "refuse 2 amd.com/gpu", Pairs: []machine.Pair{
		pair("0000:11:00.0", "0000:0c:00.1", topology.PIX), pair("0000:2f:00.0", "0000:9c:00.1", topology.SYS),
	}}}
	const want = `team/strict/c was refused: for 1 GPU there is no VF of its own on its switch
   next: end team/other/c, which has VFs of switch 0000:2c:00.0, then create team/strict again

   GPU           SWITCH        NUMA  VFS FREE NOW  VFS HELD BY
   0000:2f:00.0  0000:2c:00.0  0     0/1           team/other/c
`
	var got cli.Text
	s.writeReasons(&got, "team/strict/c", refused)
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Where a GPU wants more VFs than its switch has, or shares one with a GPU of another switch, neither the end
// of another pod nor a second attempt helps.
func TestNextOfUnequalNumbers(t *testing.T) {
	t.Parallel()
	s := node(given("0000:30:00.1", off, "", 0))
	for name, pairs := range map[string][]machine.Pair{
		"more VFs": {
			pair("0000:2f:00.0", "0000:30:00.1", topology.PIX), pair("0000:2f:00.0", "0000:9c:00.1", topology.SYS),
		},
		"more GPUs": {
			pair("0000:11:00.0", "0000:0c:00.1", topology.PIX), pair("0000:2f:00.0", "0000:0c:00.1", topology.NODE),
		},
	} {
		var got cli.Text
		refused := []Decision{{Container: "team/strict/c", Refusal: "refuse", Pairs: pairs}}
		s.writeReasons(&got, "team/strict/c", refused)
		const want = "   next: ask for as many VFs as GPUs: the numbers differ, and switch 0000:2c:00.0 has 1 VF\n"
		if !strings.Contains(got.String(), want) {
			t.Errorf("%s: no %q in\n%s", name, want, got.String())
		}
	}
}

// Nothing is said of a container whose pairs are as they should be, and of one that wants no pairs.
func TestNoReasons(t *testing.T) {
	t.Parallel()
	var got cli.Text
	s := node()
	s.Resources[1].Devices[1].Switch = off // the second VF is beside the second GPU
	s.writeReasons(&got, "team/train/c", []Decision{{Container: "team/train/c"}})
	s.Resources[1].Devices = nil
	s.writeReasons(&got, "team/train/c", []Decision{{Container: "team/train/c"}})
	if text := got.String(); text != "" {
		t.Errorf("got %q", text)
	}
}

// What is read of annotations is said where it is not as it should be.
func TestUnenforced(t *testing.T) {
	t.Parallel()
	for want, alignment := range map[string]*api.Alignment{
		"": {Policy: "preferred", Annotations: true, Source: "pods-api"},
		"NOT ENFORCED annotation tandem.dev/alignment of pods is not enforced on this node: kubelet: no\n": {
			Policy: "preferred", Why: "kubelet: no",
		},
	} {
		table := NewStatus(&api.StatusResponse{Alignment: alignment}).Table()
		_, got, _ := strings.Cut(table.String(), "\n")
		if got != want {
			t.Errorf("%v: %q, want %q", alignment, got, want)
		}
	}
	if s := NewStatus(&api.StatusResponse{}); s.Alignment != nil || s.Alignment.WhyUnenforced() != "" {
		t.Errorf("a plugin that does not say: %+v", s.Alignment)
	}
}
