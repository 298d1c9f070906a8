// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// maybeCrash has another server take over, one time in four.
func (a *admission) maybeCrash() {
	if a.crashes && a.random.IntN(4) == 0 {
		a.takeOver()
	}
}

// takeOver replaces the coordinator by one that starts from what the old one has written down.
func (a *admission) takeOver() {
	a.t.Helper()
	a.t.Log("crash")
	old := a.coordinator
	a.coordinator = a.successor(old.now)
	a.coordinator.restoreHolders()
	a.announce()
}

// successor returns a coordinator that starts from what the coordinator has written down.
func (a *admission) successor(now func() time.Time) *Coordinator {
	a.t.Helper()
	next := (&Coordinator{Config: a.coordinator.Config}).startAt(a.coordinator.current().tree, now)
	if err := next.restore(written(a.t, a.coordinator), next.Log); err != nil {
		a.t.Fatal(err)
	}
	return next
}

// A decision names the UID of its pod and whether the pod has the devices, after a takeover too: explain
// tells a pod from its successor.
func TestDecisionsNameThePod(t *testing.T) {
	t.Parallel()
	for source, known := range map[intent.Source]bool{"": false, intent.PodsAPI: true} {
		a := told(t)
		a.source = source
		pod := a.pending("train", wish{1, 1}).Pod
		a.serve(pod, gpus, 0, 1)
		a.serve(pod, vfs, 0, 1)
		a.keep(pod)
		for _, server := range []string{"first", "second"} {
			decisions, err := a.coordinator.Explain(t.Context(), "team", "train", "c")
			if err != nil || len(decisions) != 2 {
				t.Fatalf("source %q, %s server: %v, %v", source, server, decisions, err)
			}
			for _, d := range decisions {
				if !d.GetHeld() {
					t.Errorf("source %q, %s server: the devices of %v are not held", source, server, d)
				}
				if (d.GetPodUid() == a.uids[pod]) != known || !known && d.GetPodUid() != "" {
					t.Errorf("source %q, %s server: UID %q of a pod with UID %q", source, server, d.GetPodUid(), a.uids[pod])
				}
			}
			a.takeOver()
		}
	}
}

// The next server has the state of the one before, but for a few fields. A new field is one of them, or is
// saved.
func TestNextServerHasTheState(t *testing.T) {
	t.Parallel()
	pod := kubelet.Pod{Namespace: "team", Name: "train"}
	owner := kubelet.Container{Pod: pod, Name: "c"}
	devices, recorded := kubelet.Devices{gpus: {"gpu"}}, kubelet.Identity{Size: 1}
	before, after := emptyServer(), emptyServer()
	s := before.current()
	s.ids = 7
	s.allocates = []holders.Allocate{{
		Resource: gpus, IDs: []string{"gpu"}, UID: "uid", Pod: pod, Name: "c", Anew: true, Recorded: recorded,
		Life: "life",
	}}
	s.known = map[string]holders.Known{"uid": {Pod: pod, Told: true}}
	s.listing = listing{
		Read: true, Life: "life", Pods: map[kubelet.Pod]bool{pod: true}, Arrived: []kubelet.Pod{pod},
	}
	holder := holders.Holder{
		UID: "uid", Pod: pod, Name: "c", Devices: devices, Open: true, Init: true, Life: "life", Lost: true,
	}
	s.hold(holders.Holders{holder})
	s.unlisted = holders.Holders{holder, holder}
	s.open = &openAdmission{
		Container: &recipient{
			ID: 7, Owner: &owner, Pods: []kubelet.Pod{pod}, Devices: devices, Newest: gpus, Inherits: devices,
			Looked: true, Unasked: true, Guessed: true, Shown: true, Asker: &asker{
				Source: intent.PodsAPI, Pod: pod, UID: "uid", Name: "c", Alignment: intent.Required, Exact: true,
				Requests: map[string]int{gpus: 2}, Others: []intent.Alignment{intent.Preferred}, Pods: []kubelet.Pod{pod},
			},
		},
		Recorded: recorded, Devices: devices, Files: []string{"file"}, VFs: []pairs.VF{{ID: "vf", Resource: vfs}},
		Plan: &plan{
			Devices: devices, Resource: vfs, Anew: true, Predicted: true, FromMore: true,
			Expires: time.Now().Add(planTTL / 2).Round(0),
		},
	}
	unsaved := "version tree resources at choice promised until Created CPUs Beside Before BeforeInit Chosen " +
		"Remarks Containers"
	for _, part := range []any{
		*s, s.allocates[0], holder, *s.open, *s.open.Container, *s.open.Container.Asker, *s.open.Plan, s.listing,
	} {
		v := reflect.ValueOf(part)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if saved := !slices.Contains(strings.Fields(unsaved), name); saved == v.Field(i).IsZero() {
				t.Errorf("%T.%s: saved %t, and in this test: %t", part, name, saved, !v.Field(i).IsZero())
			}
		}
	}
	if err := after.restore(written(t, before), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff(s, after.current(), cmpopts.IgnoreFields(state{}, "books", "resources"),
		cmp.AllowUnexported(state{}, openAdmission{}, plan{}))
	if diff != "" {
		t.Errorf("state of the next server (-want +got):\n%s", diff)
	}
}

// A server that dies in the middle of an admission costs no pair, whatever tells it who asks.
func TestCrashesCostNoPair(t *testing.T) {
	for _, source := range everySource {
		seeds := 8
		if source == "" {
			seeds = 20
		}
		for seed := range uint64(scale.Rounds(seeds)) {
			t.Run(fmt.Sprintf("source %q, seed %d", source, seed), func(t *testing.T) {
				t.Parallel()
				a := newAdmission(t, "oci-mi300x-derived", 1+3*int(seed%2), seed%4 > 1, seed)
				a.source = source
				a.keepCheckpoint()
				a.crashes = true
				a.mixedLoad(150)
			})
		}
	}
}

// The file keeps nothing of what pods make long: names in annotations, containers, resources of others.
func TestFileKeepsNoListsOfPods(t *testing.T) {
	t.Parallel()
	a := told(t)
	before := len(encoded(t, a.coordinator))
	pod := a.pending("long", wish{1, 1})
	pod.Chosen = slices.Repeat([]string{"0000:11:00.0"}, 1000)
	pod.Remarks = slices.Repeat([]string{"a remark"}, 1000)
	for i := range 1000 {
		pod.Containers[0].Requests[fmt.Sprint("example.com/resource-", i)] = 1
		pod.Containers = append(pod.Containers, intent.Container{Name: fmt.Sprint("container-", i)})
	}
	a.serve(pod.Pod, vfs, 0, 1)
	if grown := len(encoded(t, a.coordinator)) - before; grown > 4096 {
		t.Errorf("one pod makes the file %d bytes longer", grown)
	}
}

// saver has a state that can be saved: a coordinator, or the state alone.
type saver interface{ save() savedState }

// encoded is what a server writes.
func encoded(t *testing.T, s saver) []byte {
	t.Helper()
	content, err := json.Marshal(s.save())
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// written is what the next server reads.
func written(t *testing.T, s saver) (saved savedState) {
	t.Helper()
	if err := json.Unmarshal(encoded(t, s), &saved); err != nil {
		t.Fatal(err)
	}
	return saved
}

// A pod that has ended holds nothing for a server without a request source, although an earlier server had
// one: the checkpoint of the same kubelet no longer has the pod.
func TestEndedPodHoldsNothingAfterATakeover(t *testing.T) {
	t.Parallel()
	a := told(t)
	owner, held := a.start("owner", gpus)
	a.pending("second", wish{0, 1}) // its question shows the owner
	a.ask(vfs, 0, 1)
	a.source = ""
	a.takeOver()
	a.remove(owner)
	a.record()
	a.ask(vfs, 0, 1)
	if got := a.coordinator.holderOf(gpus, held[0]); got != "" {
		t.Errorf("the GPU is held by %q", got)
	}
}

func exampleKept() savedState {
	at := func(name string, node topology.NUMANode) device.Device {
		address, _ := topology.ParseAddress(name)
		return device.Device{ID: name, Address: address, NUMA: node}
	}
	owner := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train"}, Name: "worker"}
	gpu := at("0000:11:00.0", topology.Node(1))
	set, _ := device.Resources{}.Announce(gpus, device.GPU, device.Announcement{
		Devices: []device.Device{gpu, at("0000:2f:00.0", topology.NUMANode{})},
	})
	container := &recipient{Owner: &owner, Devices: kubelet.Devices{gpus: {gpu.ID}}}
	return savedState{
		Resources: set.Save(),
		Allocates: []holders.Allocate{{Resource: gpus, IDs: []string{gpu.ID}, UID: "u", Pod: owner.Pod}},
		Admission: &savedAdmission{openAdmission{Container: container}, nil},
	}
}

// A file that contradicts itself is set aside, with a warning, and the server starts.
func TestContradictionIsSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wrong := exampleKept()
	wrong.Resources[0].Kind = "other"
	var log bytes.Buffer
	c := &Coordinator{Config: emptyCheckpoint().with(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})}
	c.startAt(nil, time.Now)
	write(t, dir, wrong)
	var err error
	if c.store, err = openStore[savedState](system.Disk{}, dir, c.Log); err != nil {
		t.Fatal(err)
	}
	c.recoverState()
	if s := c.current(); len(s.resources) > 0 || len(s.allocates) > 0 ||
		strings.Count(log.String(), "\n") != 1 ||
		!strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "of kind") {
		t.Errorf("resources %v, log %q, want a warning", s.resources, log.String())
	}
	if _, err := os.Lstat(filepath.Join(dir, badStateFile)); err != nil {
		t.Errorf("it was not kept: %v", err)
	}
	write(t, dir, c.save())
	if _, err := readStore[savedState](dir, ""); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// emptyCheckpoint is a kubelet with an empty checkpoint.
func emptyCheckpoint() *sources {
	return &sources{recorded: func() (kubelet.Checkpoint, error) { return kubelet.Checkpoint{}, nil }}
}

// write writes a file as a server does that ends.
func write(t *testing.T, dir string, k savedState) {
	t.Helper()
	s, err := openStore[savedState](system.Disk{}, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.run(ended, func() savedState { return k }); err != nil {
		t.Fatal(err)
	}
}

func FuzzKept(f *testing.F) {
	now := time.Unix(1000, 0)
	good, err := json.Marshal(exampleKept())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var saved savedState
		if json.Unmarshal(content, &saved) != nil {
			return
		}
		c := &Coordinator{Config: emptyCheckpoint().with(Config{Log: slog.New(slog.DiscardHandler)})}
		c.startAt(nil, func() time.Time { return now })
		if c.restore(saved, c.Log) != nil {
			return
		}
		c.restoreHolders()
		checkState(t, c.current())
		if err := json.Unmarshal(encoded(t, c), new(savedState)); err != nil {
			t.Errorf("what was restored cannot be read again: %v", err)
		}
	})
}
