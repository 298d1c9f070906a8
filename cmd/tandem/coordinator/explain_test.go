// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/api"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	owner := &api.Owner{Namespace: "team", Pod: "train", Container: "worker"}
	decisions := newDecisions(&api.ExplainResponse{Decisions: []*api.Decision{
		{
			TimeUnixNano: at.UnixNano(), TookNano: 412000, Container: owner, Resource: "amd.com/gpu", Asked: true,
			Size: 1, Available: 4, Known: "new pod", Chosen: []string{"g"},
			Planned: map[string]*api.DeviceList{"nvidia.com/vf": {Ids: []string{"v"}}}, Reason: "1 pair: 1 PIX",
			Pairs: []*api.Pair{{Gpu: "g", Vf: "v", Distance: "PIX"}},
			Options: []*api.Option{
				{Switch: "0000:08:00.0", FreeGpus: 1, FreeVfs: 4, TakenGpus: 1, TakenVfs: 1, Result: "1 pair: 1 PIX"},
				{Switch: "0000:09:00.0", FreeGpus: 1},
			},
			Allocated: []string{"g"}, AllocatedUnixNano: at.UnixNano(),
		},
		{TimeUnixNano: at.UnixNano(), Container: owner, Resource: "nvidia.com/vf", Size: 1,
			Allocated: []string{"v"}, AllocatedUnixNano: at.UnixNano(), Refusal: "it is taken"},
		{TimeUnixNano: at.UnixNano(), Container: owner, Resource: "nvidia.com/vf", Asked: true,
			MustInclude: []string{"v"}, Size: 1},
	}})
	want := `team/train/worker: taken by nobody

1. TIME amd.com/gpu of team/train/worker
   asked      1 of 4 offered, answered after 412µs
   who asked  new pod
   chosen     g
   planned    nvidia.com/vf v
   result     1 pair: 1 PIX
   allocated  g

   GPU  VF  DISTANCE
   g    v   PIX

   SWITCH        GPUS TAKEN/OFFERED  VFS TAKEN/OFFERED  ON THIS SWITCH ALONE
   0000:08:00.0  1/1                 1/4                1 pair: 1 PIX
   0000:09:00.0  0/1                 -                  too few: 1 GPU and 0 VFs offered

2. TIME nvidia.com/vf of team/train/worker
   not asked  the kubelet had no choice, or was answered without the coordinator
   refused    it is taken

3. TIME nvidia.com/vf of team/train/worker
   asked         1 of 0 offered, answered after 0s
   must include  v
   allocated     nothing: the kubelet went on without it
`
	want = strings.ReplaceAll(want, "TIME", at.Format(time.RFC3339Nano))
	if diff := cmp.Diff(want, explainDecisions(decisions, nil, false).String()); diff != "" {
		t.Errorf("explanation (-want +got):\n%s", diff)
	}
	list := `TIME  CONTAINER          RESOURCE       DEVICES  RESULT
AT    team/train/worker  amd.com/gpu    1        1 pair: 1 PIX
AT    team/train/worker  nvidia.com/vf  1        refused: it is taken
AT    team/train/worker  nvidia.com/vf  1        taken by nobody
`
	got := strings.ReplaceAll(listDecisions(decisions).String(), at.Format(time.RFC3339), "AT")
	if diff := cmp.Diff(strings.Fields(list), strings.Fields(got)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for text, want := range map[*cli.Text]string{
		explainDecisions(decisions, nil, false): "[32mPIX [32mPIX [32mPIX [31mrefused",
		listDecisions(decisions):                "[32mPIX [31mrefused",
	} {
		var shown bytes.Buffer
		cmd, format := &cobra.Command{}, cli.OneOf(cli.AsTable)
		cmd.SetOut(cli.NewPrintableWriter(&shown))
		cmd.Flags().String(cli.Colour, "always", "")
		if err := format.Show(cmd, text); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(regexp.MustCompile(`\[3\dm\w+`).FindAllString(shown.String(), -1), " ")
		if got != want {
			t.Errorf("colours %q, want %s", got, want)
		}
	}
	if got := listDecisions(nil).String(); !strings.Contains(got, "no decision") {
		t.Errorf("nothing is said as %q", got)
	}
	var again []Decision
	text, err := json.Marshal(decisions)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &again); err != nil || !cmp.Equal(decisions, again) {
		t.Errorf("through JSON: %v, %s", err, cmp.Diff(decisions, again))
	}
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
	twice := []Decision{decide("gpu", 0, ""), decide("gpu", 1, "")}
	markEarlier(twice, presentPod{})
	text := explainDecisions(twice, nil, false).String()
	if !strings.Contains(text, "1 more decision of earlier pods") ||
		strings.Count(text, "gpu of") != 1 {
		t.Error(text)
	}
	text = explainDecisions([]Decision{{EarlierPod: true}}, nil, false).String()
	if text != "no decision for a present pod of this name; --all shows 1 decision for deleted pods\n" {
		t.Errorf("decisions of a deleted pod alone: %q", text)
	}
	text = explainDecisions(twice, nil, true).String()
	if strings.Index(text, "EARLIER PODS") < strings.Index(text, "1. ") ||
		strings.Count(text, "gpu of") != 2 {
		t.Error(text)
	}
}

// TestOfOneKind: switches without enough VFs are described without GPUs if the pod requests none.
func TestOfOneKind(t *testing.T) {
	t.Parallel()
	text := explainDecisions([]Decision{{Container: "n/p/c", Asked: true, Switches: []switchState{
		{Name: "a", FreeVFs: 4, TakenVFs: 4, Alone: "4 VFs"}, {Name: "b", FreeVFs: 3},
	}}}, nil, false).String()
	if !strings.Contains(text, "too few: 3 VFs offered") {
		t.Error(text)
	}
}
