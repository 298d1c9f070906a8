package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
	"github.com/tandem-k8s/tandem/coordination/store"
	"github.com/tandem-k8s/tandem/topology"
)

// maybeCrash replaces the coordinator, one time in four, by one that starts from what the old one has written
// down.
func (a *admission) maybeCrash() {
	if !a.crashes || a.random.IntN(4) > 0 {
		return
	}
	a.t.Log("crash")
	var saved checkpoint
	if err := json.Unmarshal(encoded(a.t, a.coordinator), &saved); err != nil {
		a.t.Fatal(err)
	}
	old := a.coordinator
	a.coordinator = &Coordinator{Config: old.Config}
	a.coordinator.startAt(old.current().tree, old.now)
	a.coordinator.inFlight = old.inFlight
	if err := a.coordinator.restore(saved); err != nil {
		a.t.Fatal(err)
	}
	if diff := cmp.Diff(owners(old.current().ledger), owners(a.coordinator.current().ledger)); diff != "" {
		a.t.Errorf("owners (-saved +restored):\n%s", diff)
	}
	now, err := a.recorded()
	if err != nil {
		a.t.Fatal(err)
	}
	a.coordinator.current().ledger.Reconcile(now, nil)
	checkLedger(a.t, a.coordinator.current().ledger)
	a.announce()
}

// A server that dies in the middle of an admission costs no pair, whatever tells it who asks.
func TestCrashesCostNoPair(t *testing.T) {
	for _, source := range []intent.Source{"", intent.PodsAPI, intent.Kubelet, intent.APIServer} {
		seeds := uint64(8)
		if source == "" {
			seeds = 20
		}
		for seed := range seeds {
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

// What a source told of an ordinary pod, one that says nothing of alignment, can be read back, with whose the
// devices are.
func TestLedgerOfAnOrdinaryPodIsReadBack(t *testing.T) {
	t.Parallel()
	for _, alignment := range []intent.Alignment{"", intent.Preferred, intent.Required} {
		a := told(t)
		pod := a.pending("ordinary", wish{1, 1})
		pod.Alignment = alignment
		ids, _ := a.ask(vfs, 0, 1)
		a.take(pod.Pod, vfs, ids)
		var saved checkpoint
		if err := json.Unmarshal(encoded(t, a.coordinator), &saved); err != nil {
			t.Fatalf("alignment %q: %v", alignment, err)
		}
		next := new(Coordinator).startAt(nil, a.coordinator.now)
		if err := next.restore(saved); err != nil {
			t.Fatalf("alignment %q: %v", alignment, err)
		}
		held := next.current().ledger.Holder(vfs, ids[0])
		if held == nil || held.Recipient == nil || held.Recipient.Container().String() != "team/ordinary/c" ||
			held.Recipient.Alignment != alignment {
			t.Errorf("alignment %q: held by %+v", alignment, held)
		}
	}
}

// A ledger keeps nothing of what pods make long: names in annotations, containers, resources of others.
func TestLedgerKeepsNoListsOfPods(t *testing.T) {
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
	ids, _ := a.ask(vfs, 0, 1)
	a.take(pod.Pod, vfs, ids)
	if grown := len(encoded(t, a.coordinator)) - before; grown > 4096 {
		t.Errorf("one pod makes the ledger %d bytes longer", grown)
	}
}

func encoded(t *testing.T, c *Coordinator) []byte {
	t.Helper()
	content, err := json.Marshal(c.checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Without a checkpoint of ours the kubelet alone tells who holds what.
func TestLedgerIsRebuiltFromTheKubelet(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 3)
	a.keepCheckpoint()
	for i := range 3 {
		if !a.admit(a.add(fmt.Sprint("pod-", i)), "worker", wish{2, 2}) {
			t.Fatal("not admitted")
		}
	}
	fresh := ledger.New()
	fresh.Announce(gpus, device.GPU, device.Announcement{Devices: a.all[gpus]})
	fresh.Announce(vfs, device.VF, device.Announcement{Devices: a.all[vfs]})
	now, err := a.recorded()
	if err != nil {
		t.Fatal(err)
	}
	fresh.Adopt(now)
	view, err := a.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	look(a.coordinator.current(), view)
	(&asking.Evidence{
		Ledger: fresh, Looked: new(asking.Looked), Progress: asking.Complete, View: &view,
	}).Observe(asking.Question{})
	if diff := cmp.Diff(owners(a.coordinator.current().ledger), owners(fresh)); diff != "" ||
		len(fresh.Allocations()) != 3 {
		t.Errorf("owners (-known +rebuilt):\n%s", diff)
	}
	checkLedger(t, fresh)
}

// look has a state know what a view shows.
func look(s *state, view kubelet.View) {
	(&deciding{state: s}).evidence(&view, nil).Observe(asking.Question{})
}

// owners are those of all devices, as people read them.
func owners(l *ledger.Ledger) map[string]string {
	found := map[string]string{}
	for _, a := range l.Allocations() {
		for _, ids := range a.Devices {
			for id := range ids {
				found[id] = a.OwnerName()
			}
		}
	}
	return found
}

func exampleCheckpoint(now time.Time) checkpoint {
	at := func(name string, node topology.NUMANode) device.Device {
		address, _ := topology.ParseAddress(name)
		return device.Device{ID: name, Address: address, NUMA: node}
	}
	owner := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train"}, Name: "worker"}
	l, held := ledger.New(), &ledger.Allocation{Owner: &owner, Looked: true}
	l.Announce(gpus, device.GPU, device.Announcement{
		Devices: []device.Device{at("0000:11:00.0", topology.Node(1)), at("0000:2f:00.0", topology.NUMANode{})},
	})
	vf := at("0000:0c:00.1", topology.Node(1))
	l.Announce(vfs, device.VF, device.Announcement{Devices: []device.Device{vf}})
	l.Allocate(held, gpus, []string{"0000:11:00.0"}, nil)
	return checkpoint{
		Saved: l.Save(),
		Seen:  []kubelet.Pod{owner.Pod},
		Plan: &savedPlan{
			Devices: map[string][]string{vfs: {"0000:0c:00.1"}}, Holder: held, Expires: now.Add(time.Second),
		},
		Given: savedGiven{Newest: allocate{Resource: gpus, IDs: []string{"0000:11:00.0"}, Known: true}},
	}
}

// A plan that claims to last longer than any does is of a changed clock.
func TestPlanOfAnotherTimeIsDropped(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for shift, want := range map[time.Duration]bool{0: true, time.Hour: false, -time.Hour: false} {
		c := new(Coordinator).startAt(nil, func() time.Time { return now.Add(shift) })
		if err := c.restore(exampleCheckpoint(now)); err != nil {
			t.Fatal(err)
		}
		if got := c.current().plan != nil; got != want {
			t.Errorf("clock moved by %s: plan kept %t", shift, got)
		}
	}
}

// A checkpoint that contradicts itself is set aside, with a warning, and the server starts.
func TestContradictionIsSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	twice := exampleCheckpoint(time.Now())
	other := *twice.Allocations[0]
	other.ID++
	twice.Allocations = append(twice.Allocations, &other)
	var log bytes.Buffer
	c := &Coordinator{Config: Config{
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
		Recorded: func() (kubelet.Checkpoint, error) { return kubelet.Checkpoint{}, nil },
	}}
	c.startAt(nil, time.Now)
	write(t, dir, twice)
	var err error
	if c.store, err = store.Open[checkpoint](dir, c.Log); err != nil {
		t.Fatal(err)
	}
	c.recover()
	held := c.current().ledger.Allocations()
	if len(held) > 0 || strings.Count(log.String(), "\n") != 1 ||
		!strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "held twice") {
		t.Errorf("ledger %v, log %q, want a warning", held, log.String())
	}
	if _, err := os.Lstat(filepath.Join(dir, store.BadName)); err != nil {
		t.Errorf("it was not kept: %v", err)
	}
	write(t, dir, c.current().save(c.now()))
	if _, err := store.Read[checkpoint](dir); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// write writes a checkpoint as a server does that ends.
func write(t *testing.T, dir string, c checkpoint) {
	t.Helper()
	s, err := store.Open[checkpoint](dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Run(ended, func() checkpoint { return c }); err != nil {
		t.Fatal(err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	now := time.Unix(1000, 0)
	good, err := json.Marshal(exampleCheckpoint(now))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		var saved checkpoint
		if json.Unmarshal(content, &saved) != nil {
			return
		}
		c := new(Coordinator).startAt(nil, func() time.Time { return now })
		if c.restore(saved) != nil {
			return
		}
		checkLedger(t, c.current().ledger)
		c.current().ledger.Reconcile(kubelet.Checkpoint{}, nil)
		checkLedger(t, c.current().ledger)
		again, err := json.Marshal(c.current().save(now))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, new(checkpoint)); err != nil {
			t.Errorf("what was restored cannot be read again: %v", err)
		}
	})
}
