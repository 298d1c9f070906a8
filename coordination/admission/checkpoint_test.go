package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// maybeCrash replaces the coordinator, one time in four, by one that starts from what the old one has written
// down.
func (a *admission) maybeCrash() {
	if !a.crashes || a.random.IntN(4) > 0 {
		return
	}
	a.t.Log("crash")
	saved, err := decodeCheckpoint(encoded(a.t, a.coordinator))
	if err != nil {
		a.t.Fatal(err)
	}
	old := a.coordinator
	a.coordinator = &Coordinator{Config: old.Config}
	a.coordinator.startAt(old.current().tree, old.current().ledger.now)
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
	a.coordinator.current().ledger.reconcile(now)
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
		saved, err := decodeCheckpoint(encoded(t, a.coordinator))
		if err != nil {
			t.Fatalf("alignment %q: %v", alignment, err)
		}
		next := new(Coordinator).startAt(nil, a.coordinator.current().ledger.now)
		if err := next.restore(saved); err != nil {
			t.Fatalf("alignment %q: %v", alignment, err)
		}
		held := next.current().ledger.holders[vfs][ids[0]]
		if held == nil || held.asker == nil || held.asker.container().String() != "team/ordinary/c" ||
			held.asker.pod.Alignment != alignment {
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
	if grown := len(encoded(t, a.coordinator)) - before; grown > 2048 {
		t.Errorf("one pod makes the ledger %d bytes longer", grown)
	}
}

func encoded(t *testing.T, c *Coordinator) []byte {
	t.Helper()
	content, err := c.current().save().encode()
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
	fresh := newLedger(a.coordinator.current().ledger.now)
	fresh.announce(gpus, device.GPU, device.Announcement{Devices: a.all[gpus]})
	fresh.announce(vfs, device.VF, device.Announcement{Devices: a.all[vfs]})
	now, err := a.recorded()
	if err != nil {
		t.Fatal(err)
	}
	fresh.adopt(now)
	view, err := a.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	(&deciding{state: a.coordinator.current()}).observe(view, question{})
	(&deciding{state: &state{ledger: fresh}, progress: complete}).observe(view, question{})
	if diff := cmp.Diff(owners(a.coordinator.current().ledger), owners(fresh)); diff != "" ||
		len(fresh.allocations()) != 3 {
		t.Errorf("owners (-known +rebuilt):\n%s", diff)
	}
	checkLedger(t, fresh)
}

// owners are those of all devices, as people read them.
func owners(l *ledger) map[string]string {
	found := map[string]string{}
	for _, holders := range l.holders {
		for id, a := range holders {
			found[id] = a.ownerName()
		}
	}
	return found
}

func openStore(t *testing.T, dir string, log *slog.Logger) *store {
	t.Helper()
	store, err := newStore(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.close)
	return store
}

// A server whose folder was replaced does not write into that of the next one.
func TestStoreKeepsToItsFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	old := openStore(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	old.write(exampleCheckpoint(time.Now()))
	if _, err := os.Lstat(filepath.Join(dir, checkpointName)); !errors.Is(err, fs.ErrNotExist) ||
		strings.Count(log.String(), "\n") != 1 {
		t.Errorf("checkpoint of the old server: %v, log %q", err, log.String())
	}
}

func exampleCheckpoint(now time.Time) checkpoint {
	node := 1
	owner := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train"}, Name: "worker"}
	return checkpoint{
		Boot:     bootID(),
		Sequence: 2,
		Resources: []savedResource{
			{Name: gpus, Kind: device.GPU,
				Devices: []savedDevice{{"0000:11:00.0", "0000:11:00.0", &node}, {"0000:2f:00.0", "0000:2f:00.0", nil}}},
			{Name: vfs, Kind: device.VF, Devices: []savedDevice{{"0000:0c:00.1", "0000:0c:00.1", &node}}},
		},
		Allocations: []savedAllocation{
			{Devices: map[string]map[string]int{gpus: {"0000:11:00.0": 2}}, Owner: &owner, Looked: true},
		},
		Seen: []kubelet.Pod{owner.Pod},
		Plan: &savedPlan{Devices: map[string][]string{vfs: {"0000:0c:00.1"}}, Expires: now.Add(time.Second)},
		Last: savedRecord{Resource: gpus, IDs: []string{"0000:11:00.0"}, Known: true},
	}
}

// What cannot be trusted is set aside, with a warning, and the server starts.
func TestBadCheckpointIsSetAside(t *testing.T) {
	t.Parallel()
	good, err := exampleCheckpoint(time.Now()).encode()
	if err != nil {
		t.Fatal(err)
	}
	twice := exampleCheckpoint(time.Now())
	twice.Allocations = append(twice.Allocations, twice.Allocations[0])
	contradiction, err := twice.encode()
	if err != nil {
		t.Fatal(err)
	}
	put := func(content []byte, mode os.FileMode) func(string) error {
		return func(name string) error {
			return errors.Join(os.WriteFile(name, content, 0o600), os.Chmod(name, mode))
		}
	}
	for name, tc := range map[string]struct {
		put    func(name string) error
		reason string
	}{
		"empty":     {put(nil, 0o600), "parse"},
		"truncated": {put(good[:len(good)/2], 0o600), "parse"},
		"changed":   {put(bytes.Replace(good, []byte("train"), []byte("trail"), 1), 0o600), "checksum"},
		"other version": {put(bytes.Replace(good, []byte(`"version":3`), []byte(`"version":4`), 1), 0o600),
			"version 4"},
		"contradiction": {put(contradiction, 0o600), "held twice"},
		"writable":      {put(good, 0o622), "nobody else can write"},
		"too large":     {put(make([]byte, maxCheckpoint+1), 0o600), "more than"},
		"link":          {func(name string) error { return os.Symlink("/dev/zero", name) }, "symbolic links"},
		"folder":        {func(name string) error { return os.Mkdir(name, 0o700) }, "has to be a file"},
		"pipe":          {func(name string) error { return syscall.Mkfifo(name, 0o600) }, "has to be a file"},
		"foreign": {func(name string) error {
			return errors.Join(put(good, 0o600)(name), os.Chown(name, 4242, 4242))
		}, "has to be a file of user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := tc.put(filepath.Join(dir, checkpointName)); errors.Is(err, syscall.EPERM) {
				t.Skip("needs root to make a file of somebody else")
			} else if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			store := openStore(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
			c := &Coordinator{
				Config: Config{
					Log: store.log, Recorded: func() (kubelet.Checkpoint, error) { return kubelet.Checkpoint{}, nil },
				},
			}
			c.startAt(nil, time.Now)
			c.store = store
			c.recover()
			if len(c.current().ledger.holders) > 0 || strings.Count(log.String(), "\n") != 1 ||
				!strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), tc.reason) {
				t.Errorf("ledger %v, log %q, want a warning with %q", c.current().ledger.holders, log.String(), tc.reason)
			}
			if _, err := os.Lstat(filepath.Join(dir, badName)); err != nil {
				t.Errorf("it was not kept: %v", err)
			}
			store.write(c.current().save())
			if _, err := readCheckpoint(dir); err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}

func TestCheckpointOfAnotherBootIsLeft(t *testing.T) {
	t.Parallel()
	store := openStore(t, t.TempDir(), slog.New(slog.DiscardHandler))
	store.boot = "before"
	store.write(exampleCheckpoint(time.Now()))
	store.boot = bootID()
	if c, ok := store.load(); ok {
		t.Errorf("loaded %v", c)
	}
	store.write(exampleCheckpoint(time.Now()))
	if _, ok := store.load(); !ok {
		t.Error("that of this boot was not loaded")
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
		if got := c.current().ledger.plan != nil; got != want {
			t.Errorf("clock moved by %s: plan kept %t", shift, got)
		}
	}
}

// A full disk costs one line in the log, and nothing while it lasts.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); errors.Is(err, syscall.EPERM) {
		t.Skip("needs the right to mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	var log bytes.Buffer
	store := openStore(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	store.write(exampleCheckpoint(time.Now()))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	large := exampleCheckpoint(time.Now())
	for i := range 200 {
		large.Arrived = append(large.Arrived, kubelet.Pod{Namespace: "team", Name: fmt.Sprint("pod-", i)})
	}
	for range 3 {
		store.write(large)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 ||
		!strings.Contains(log.String(), "no space left on device") {
		t.Errorf("log %q", log.String())
	}
	if c, ok := store.load(); !ok || len(c.Arrived) > 0 {
		t.Errorf("the last good checkpoint is gone: %v, %v", c, ok)
	}
	if _, err := os.Lstat(filepath.Join(dir, tempName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a checkpoint is left: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	store.write(large)
	if c, ok := store.load(); !ok || len(c.Arrived) == 0 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("after the disk has space again: %v, log %q", ok, log.String())
	}
}

func FuzzCheckpoint(f *testing.F) {
	now := time.Unix(1000, 0)
	good, err := exampleCheckpoint(now).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":3,"checksum":0,"ledger":{}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		saved, err := decodeCheckpoint(content)
		if err != nil {
			// The checksum keeps the fuzzer out: let it at what is inside.
			if saved, err = decodeLedger(content); err != nil {
				return
			}
		}
		c := new(Coordinator).startAt(nil, func() time.Time { return now })
		if c.restore(saved) != nil {
			return
		}
		checkLedger(t, c.current().ledger)
		c.current().ledger.reconcile(kubelet.Checkpoint{})
		checkLedger(t, c.current().ledger)
		again, err := c.current().save().encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeCheckpoint(again); err != nil {
			t.Errorf("what was restored cannot be read again: %v", err)
		}
	})
}
