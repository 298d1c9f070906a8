// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/topology"
)

// TestExplain: a page and a list of decisions, for testdata/explain.txt.
func TestExplain(t *testing.T) {
	t.Parallel()
	owner := &api.Owner{Namespace: "team", Pod: "train", Container: "worker"}
	decisions := newDecisions(&api.ExplainResponse{Decisions: []*api.Decision{
		{
			TimeUnixNano: 1, TookNano: 412000, Container: owner, Resource: "amd.com/gpu", Asked: true,
			Size: 1, Available: 4, Known: "new pod", Chosen: []string{"g"},
			Planned: map[string]*api.DeviceList{"nvidia.com/vf": {Ids: []string{"v"}}}, Reason: "1 pair: 1 PIX",
			Pairs: []*api.Pair{{Gpu: "g", Vf: "v", Distance: "PIX"}},
			Options: []*api.Option{
				{Switch: "0000:08:00.0", FreeGpus: 1, FreeVfs: 4, TakenGpus: 1, TakenVfs: 1, Result: "1 pair: 1 PIX"},
				{Switch: "0000:09:00.0", FreeGpus: 1},
			},
			Allocated: []string{"g"}, AllocatedUnixNano: 1,
		},
		{TimeUnixNano: 1, Container: owner, Resource: "nvidia.com/vf", Size: 1,
			Allocated: []string{"v"}, AllocatedUnixNano: 1, Refusal: "it is taken"},
		{TimeUnixNano: 1, Container: owner, Resource: "nvidia.com/vf", Asked: true,
			MustInclude: []string{"v"}, Size: 1},
	}})
	ofVFsAlone := []Decision{{Container: "n/p/c", Asked: true, Switches: []switchState{
		{Name: "a", FreeVFs: 4, TakenVFs: 4, Alone: "4 VFs"}, {Name: "b", FreeVFs: 3},
	}}}
	claims := &api.Owner{Namespace: "team", Pod: "train-0", Container: "claim pairs"}
	ofClaims := newDecisions(&api.ExplainResponse{Decisions: []*api.Decision{
		{Container: claims, Resource: "request pairs", Known: "claim team/pairs", Size: 1, TimeUnixNano: 1,
			Chosen: []string{"pair-11-00-0"}, Reason: "the scheduler chose pair-11-00-0", AllocatedUnixNano: 1,
			Allocated: []string{"a", "b"}, Pairs: []*api.Pair{{Gpu: "a", Vf: "b", Distance: "PIX"}}},
		{Container: claims, Known: "claim team/pairs", TimeUnixNano: 1, Refusal: "it is gone"},
	}})
	twice := []Decision{{Container: "team/train/c", Resource: "gpu", EarlierPod: true},
		{Container: "team/train/c", Resource: "gpu"}}
	var all strings.Builder
	for _, c := range []struct {
		about string
		text  *cli.Text
	}{
		{"decisions for a pod", explainDecisions(decisions, nil, false)},
		{"a list of them", listDecisions(decisions)},
		{"an empty list", listDecisions(nil)},
		{"a pod that requests VFs alone", explainDecisions(ofVFsAlone, nil, false)},
		{"claims", explainDecisions(ofClaims, nil, false)},
		{"of two pods of one name", explainDecisions(twice, nil, false)},
		{"of both", explainDecisions(twice, nil, true)},
		{"of a deleted pod alone", explainDecisions(twice[:1], nil, false)},
	} {
		fmt.Fprintf(&all, "== %s\n%s\n", c.about, coloured(t, c.text))
	}
	local := regexp.MustCompile(`(1970|1969)-[-T:.+0-9Z]+|TIME  +`) // times, and a column of times
	golden.Check(t, "testdata/explain.txt", local.ReplaceAllString(all.String(), "TIME "))
	var again []Decision
	text, err := json.Marshal(decisions)
	ready(t, err)
	if err := json.Unmarshal(text, &again); err != nil || !cmp.Equal(decisions, again) {
		t.Errorf("through JSON: %v, %s", err, cmp.Diff(decisions, again))
	}
}

// coloured returns a text with its colours as <31mWORDS>.
func coloured(t *testing.T, text *cli.Text) string {
	t.Helper()
	var shown bytes.Buffer
	cmd, format := &cobra.Command{}, cli.OneOf(cli.AsTable)
	cmd.SetOut(cli.NewPrintableWriter(&shown))
	cmd.Flags().String(cli.Colour, "always", "")
	ready(t, format.Show(cmd, text))
	return regexp.MustCompile(`\x1b\[(3\dm)(.*?)\x1b\[0m`).ReplaceAllString(shown.String(), "<$1$2>")
}

// TestEarlierPods: decisions of deleted pods of the same name are shown on request, and last.
func TestEarlierPods(t *testing.T) {
	t.Parallel()
	at := time.Now()
	decide := func(resource string, minute int, refusal string) Decision {
		when := at.Add(time.Duration(minute) * time.Minute)
		d := Decision{Time: when, Container: "team/train/c", Resource: resource, Asked: true, Refusal: refusal}
		if refusal == "" {
			d.AllocatedAt = &when
		}
		return d
	}
	of := func(uid, resource string) Decision {
		d := decide(resource, 0, "")
		d.PodUID = uid
		return d
	}
	held := func(resource string) Decision {
		d := decide(resource, 1, "")
		d.Held = true
		return d
	}
	elsewhere := func(minute int, refusal string) Decision {
		d := decide("gpu", minute, refusal)
		d.Container = "other/train/c"
		return d
	}
	for name, c := range map[string]struct {
		decisions []Decision
		present   presentPod
		earlier   int
	}{
		"one pod": {[]Decision{decide("gpu", 0, ""), decide("vf", 0, "")}, presentPod{}, 0},
		"again":   {[]Decision{decide("gpu", 0, ""), decide("vf", 0, ""), decide("gpu", 1, "")}, presentPod{}, 2},
		"after a refusal": {
			[]Decision{decide("gpu", 0, "no"), decide("vf", 1, ""), decide("gpu", 1, "")}, presentPod{}, 1,
		},
		"beside another namespace": {[]Decision{decide("gpu", 0, ""), elsewhere(1, "")}, presentPod{}, 0},
		"again in another namespace": {
			[]Decision{decide("gpu", 0, ""), elsewhere(1, ""), elsewhere(2, "")}, presentPod{}, 1,
		},
		"after a refusal in another namespace": {
			[]Decision{decide("gpu", 0, ""), elsewhere(1, "no"), elsewhere(2, "")}, presentPod{}, 1,
		},
		"by the time": {
			[]Decision{decide("gpu", 0, ""), decide("vf", 9, "")}, presentPod{Created: at.Add(8 * time.Minute)}, 1,
		},
		"of claims": {[]Decision{
			{Resource: "request a", Known: "claim team/a", AllocatedAt: &at}, {Known: "claim team/b", Refusal: "no"},
			{Known: "claim team/b", Refusal: "no"},
		}, presentPod{UID: "b", Created: at.Add(time.Hour)}, 0},
		"by the UID, with clocks an hour apart": {
			[]Decision{of("a", "gpu"), of("b", "gpu"), of("b", "vf")}, presentPod{"b", at.Add(time.Hour)}, 1,
		},
		"by the devices, with clocks an hour apart": {
			[]Decision{decide("gpu", 0, ""), held("gpu"), held("vf")}, presentPod{Created: at.Add(time.Hour)}, 1,
		},
		"by the UID, with a successor": {[]Decision{of("a", "gpu"), of("b", "gpu")}, presentPod{UID: "a"}, 1},
	} {
		markEarlier(c.decisions, c.present)
		_, earlier := splitEarlier(c.decisions)
		if len(earlier) != c.earlier {
			t.Errorf("%s: %d decisions are of earlier pods, want %d", name, len(earlier), c.earlier)
		}
	}
}

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

// TestReasons: of a container that is degraded or refused it is said which GPUs have no VF on their switch,
// on which NUMA node that is, who has the VFs there, and what to do. Free VFs below the host bridge are not
// near.
func TestReasons(t *testing.T) {
	t.Parallel()
	sick := given("0000:30:00.1", off, "", 0)
	sick.Device.Healthy = false
	free := given("0000:30:00.1", off, "", 0)
	other := []*api.DeviceStatus{given("0000:30:00.1", off, "other", 0), given("0000:30:00.2", off, "other", 0)}
	pair := func(gpu, vf string, distance topology.Level) machine.Pair {
		return machine.Pair{GPU: gpu, VF: vf, Distance: distance}
	}
	near := pair("0000:11:00.0", "0000:0c:00.1", topology.PIX)
	shared := pair("0000:2f:00.0", "0000:0c:00.1", topology.NODE)
	far := pair("0000:2f:00.0", "0000:9c:00.1", topology.SYS)
	var all strings.Builder
	for _, c := range []struct {
		about   string
		status  Status
		refused []machine.Pair // of a container that holds nothing: its last choice
	}{
		{"another pod has the VFs", node(other...), nil},
		{"one is free by now", node(other[0], given("0000:30:00.2", off, "", 0)), nil},
		{"there are none", node(), nil},
		{"they are broken", node(sick), nil},
		{"refused", node(other[0]), []machine.Pair{near, far}},
		{"more VFs than GPUs", node(free), []machine.Pair{pair("0000:2f:00.0", "0000:30:00.1", topology.PIX), far}},
		{"more GPUs than VFs", node(free), []machine.Pair{near, shared}},
		{"pairs as they should be: nothing", paired(), nil},
		{"no VF is offered: nothing", withoutVFs(), nil},
	} {
		var got cli.Text
		decision := Decision{Container: "team/train/c"}
		if c.refused != nil {
			decision = Decision{Container: "team/strict/c", Refusal: "refuse 2 amd.com/gpu", Pairs: c.refused}
		}
		c.status.writeReasons(&got, decision.Container, []Decision{decision})
		fmt.Fprintf(&all, "== %s\n%s\n", c.about, &got)
	}
	flat := apart{gpu: Device{ID: "0000:05:00.0", Switch: "pci0000:00"}, free: make([]Device, 7), all: 8}
	fmt.Fprintf(&all, "== no switch\n%s\n", nextStep("team/train/c", []apart{flat}, 1))
	golden.Check(t, "testdata/reasons.txt", all.String())
}

// paired has the second VF beside the second GPU.
func paired() Status {
	s := node()
	s.Resources[1].Devices[1].Switch = off
	return s
}

func withoutVFs() Status {
	s := node()
	s.Resources[1].Devices = nil
	return s
}
