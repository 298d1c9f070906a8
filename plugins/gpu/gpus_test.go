// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/topology"

	"github.com/tandem-k8s/tandem/plugins/container"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a Backend that finds what the test says.
type scripted struct {
	mu        sync.Mutex
	inventory Inventory
	err       error
	links     []topology.Link
	linksErr  error
	linksRead int
}

func (s *scripted) Discover() (Inventory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inventory, s.err
}

func (s *scripted) Links() ([]topology.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linksRead++
	return s.links, s.linksErr
}

func (s *scripted) Edits([]Device) container.Edits { return container.Edits{} }

// find sets what is found from now on: per resource its healthy devices.
func (s *scripted) find(resources map[string]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.inventory = Inventory{Resources: map[string][]Device{}, Notes: []string{"as always"}}
	for resource, ids := range resources {
		s.inventory.Resources[resource] = nil
		for id := range strings.FieldsSeq(ids) {
			s.inventory.Resources[resource] = append(s.inventory.Resources[resource], Device{ID: id, Healthy: true})
		}
	}
}

// state writes a resource's devices as "a b!", ! for unhealthy.
func (g *GPUs) state(resource string) string {
	devices, _, _ := g.latestDevices(resource)
	var words []string
	for _, d := range devices {
		if !d.Healthy {
			d.ID += "!"
		}
		words = append(words, d.ID)
	}
	return strings.Join(words, " ")
}

// discover discovers for the first time.
func discover(t *testing.T, backend Backend, pulse time.Duration) *GPUs {
	t.Helper()
	gpus, err := Discover(backend, pulse, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

// told reports whether a channel tells of a change.
func told(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		backend := &scripted{}
		backend.find(map[string]string{"amd.com/gpu": "b a"}, nil)
		gpus, err := Discover(backend, 10*time.Second, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- gpus.Run(ctx) }()

		for i, step := range []struct {
			find string
			err  error
			want string
		}{
			{"a b", nil, "a b"},
			{"a", nil, "a b!"},
			{"", errors.New("read numa_node of b: input/output error"), "a b!"},
			{"", errors.New("read numa_node of b: input/output error"), "a b!"},
			{"", nil, "a! b!"},
			{"c b", nil, "a! b c"},
			{"a b c", nil, "a b c"},
		} {
			backend.find(map[string]string{"amd.com/gpu": step.find}, step.err)
			_, _, changed := gpus.latestDevices("amd.com/gpu")
			before := gpus.state("amd.com/gpu")
			<-time.After(10 * time.Second)
			synctest.Wait()
			if got := gpus.state("amd.com/gpu"); got != step.want {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
			if told := told(changed); told != (before != step.want) {
				t.Errorf("step %d: told of a change %t", i, told)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		for part, want := range map[string]int{
			"as always": 1, "input/output error": 1, "good again": 2, "appeared": 1,
		} {
			if got := strings.Count(log.String(), part); got != want {
				t.Errorf("%q logged %d times, want %d:\n%s", part, got, want, &log)
			}
		}
		if backend.linksRead != 5 {
			t.Errorf("links read %d times, want once and on every change", backend.linksRead)
		}
	})
}

// Links that could not be read when a GPU changed are read at the next look, whether GPUs change or not.
func TestLinksAreReadLater(t *testing.T) {
	t.Parallel()
	backend := &scripted{}
	backend.find(map[string]string{"amd.com/gpu": "a"}, nil)
	gpus := discover(t, backend, 0)
	backend.find(map[string]string{"amd.com/gpu": "a b"}, nil)
	backend.links, backend.linksErr = []topology.Link{{Count: 1}}, errors.New("input/output error")
	gpus.discoverAgain()
	gpus.discoverAgain()
	_, links, changed := gpus.latestDevices("amd.com/gpu")
	if len(links) > 0 {
		t.Errorf("links that cannot be read: %v", links)
	}
	backend.linksErr = nil
	gpus.discoverAgain()
	if !told(changed) {
		t.Error("nobody is told of the links")
	}
	if _, links, _ = gpus.latestDevices("amd.com/gpu"); len(links) != 1 {
		t.Errorf("links %v, want those that can be read again", links)
	}
	before := backend.linksRead
	if gpus.discoverAgain(); backend.linksRead != before {
		t.Error("links are read again though nothing has changed")
	}
}

// The memory of a GPU that could not be read at the first look is known after the first look that reads it,
// and stays known while it cannot be read again.
func TestMemoryIsReadLater(t *testing.T) {
	t.Parallel()
	backend := &scripted{}
	find := func(vram uint64) {
		backend.inventory = Inventory{Resources: map[string][]Device{
			"amd.com/gpu": {{ID: "a", Healthy: true, VRAM: vram}},
		}}
	}
	find(0)
	gpus := discover(t, backend, 0)
	const size = 192 << 30
	for i, step := range []struct {
		read    uint64
		changed bool
	}{{0, false}, {size, true}, {size, false}, {0, false}} {
		before, _, changed := gpus.latestDevices("amd.com/gpu")
		find(step.read)
		gpus.discoverAgain()
		devices, _, _ := gpus.latestDevices("amd.com/gpu")
		if want := max(step.read, before[0].VRAM); devices[0].VRAM != want {
			t.Errorf("look %d read %d: memory %d, want %d", i, step.read, devices[0].VRAM, want)
		}
		if told := told(changed); told != step.changed {
			t.Errorf("look %d: told of a change %t", i, told)
		}
	}
}

func TestPartitioningChanges(t *testing.T) {
	t.Attr("parity", "amd/resource-name-mixed")
	synctest.Test(t, func(t *testing.T) {
		backend := &scripted{}
		backend.find(map[string]string{"amd.com/spx_nps1": "a"}, nil)
		gpus := discover(t, backend, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = gpus.Run(ctx) }()
		begun := make(chan string, 9)
		done := make(chan error)
		go func() {
			done <- gpus.Each(ctx, func(ctx context.Context, name string) error {
				begun <- name
				<-ctx.Done()
				return nil
			})
		}()
		if name := <-begun; name != "amd.com/spx_nps1" {
			t.Errorf("begun %s", name)
		}
		backend.find(map[string]string{"amd.com/cpx_nps4": "a x0 x1"}, nil)
		if name := <-begun; name != "amd.com/cpx_nps4" {
			t.Errorf("begun %s", name)
		}
		if got := gpus.state("amd.com/spx_nps1"); got != "a!" {
			t.Errorf("devices %q", got)
		}
		backend.find(map[string]string{"amd.com/spx_nps1": "a"}, nil)
		<-time.After(time.Minute)
		if len(begun) > 0 {
			t.Errorf("begun %s a second time", <-begun)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestEachFails(t *testing.T) {
	backend, broken := &scripted{}, errors.New("broken")
	backend.find(map[string]string{"amd.com/gpu": "a", "amd.com/cpx_nps4": ""}, nil)
	gpus := discover(t, backend, 0)
	err := gpus.Each(t.Context(), func(ctx context.Context, name string) error {
		if name == "amd.com/gpu" {
			return broken
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestNoPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &scripted{}
		backend.find(map[string]string{"amd.com/gpu": "a", "amd.com/cpx_nps4": ""}, nil)
		gpus := discover(t, backend, 0)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		backend.find(nil, errors.New("not asked"))
		if err := gpus.Run(ctx); err != nil {
			t.Error(err)
		}
		if got, _ := gpus.resourceNames(); !slices.Equal(got, []string{"amd.com/cpx_nps4", "amd.com/gpu"}) {
			t.Errorf("names %v", got)
		}
	})
}

// All shows what was found, and the answer is the backend's.
func TestAll(t *testing.T) {
	backend := &scripted{links: []topology.Link{{}}}
	backend.find(map[string]string{"amd.com/gpu": "b a", "amd.com/cpx_nps4": "c"}, nil)
	gpus := discover(t, backend, 0)
	all, links, _, changed := gpus.All()
	if len(all) != 2 || len(all["amd.com/gpu"]) != 2 || all["amd.com/gpu"][0].ID != "a" || len(links) != 1 {
		t.Errorf("%v, links %v", all, links)
	}
	backend.find(map[string]string{"amd.com/gpu": "a"}, nil)
	gpus.discoverAgain()
	if !told(changed) {
		t.Error("nobody is told that two are gone")
	}
	if err := gpus.Refuse("amd.com/gpu", nil, []string{"x"}); err != nil {
		t.Errorf("refused by a backend that refuses nothing: %v", err)
	}
}

// Whoever follows the GPUs hears which cards may hide one, also when nothing else has changed.
func TestUnreadCards(t *testing.T) {
	t.Parallel()
	read, silent := topology.Address{Bus: 0xa7}, topology.Address{Bus: 0x19}
	backend := &scripted{inventory: Inventory{Partial: true, Read: []topology.Address{read}}}
	gpus := discover(t, backend, 0)
	for _, partial := range []bool{true, false} {
		_, _, mayHide, changed := gpus.All()
		if mayHide(read) || mayHide(silent) != partial || mayHide(topology.Address{}) != partial {
			t.Errorf("partial %t: %t, %t, %t", partial, mayHide(read), mayHide(silent), mayHide(topology.Address{}))
		}
		backend.find(nil, nil)
		gpus.discoverAgain()
		if !told(changed) && partial {
			t.Error("nobody is told that all cards are read")
		}
	}
}

func TestDiscoverFails(t *testing.T) {
	backend := &scripted{err: errors.New("no driver")}
	if _, err := Discover(backend, 0, slog.New(slog.DiscardHandler)); !errors.Is(err, backend.err) {
		t.Errorf("error %v", err)
	}
}

// A GPU that is gone is told of no more; one whose driver is away is unhealthy. Both have a reason.
func TestGoneOrUnhealthy(t *testing.T) {
	t.Parallel()
	two := map[string][]Device{"amd.com/gpu": {{ID: "a", Healthy: true}, {ID: "b", Healthy: true}}}
	one := map[string][]Device{"amd.com/gpu": {{ID: "a", Healthy: true}}}
	known, _ := mergeDevices(nil, Inventory{Resources: two})
	for name, tc := range map[string]struct {
		found   Inventory
		healthy []bool
		gone    []bool
	}{
		"one is gone": {Inventory{Resources: one}, []bool{true, false}, []bool{false, true}},
		"one does not answer": {Inventory{Resources: one, Partial: true}, []bool{true, false},
			[]bool{false, false}},
		"the driver is away": {Inventory{Partial: true}, []bool{false, false}, []bool{false, false}},
	} {
		merged, changes := mergeDevices(known, tc.found)
		for i, d := range merged["amd.com/gpu"] {
			if d.Healthy != tc.healthy[i] || d.Gone != tc.gone[i] || d.Healthy != (d.Reason == "") {
				t.Errorf("%s: %+v", name, d)
			}
		}
		back, _ := mergeDevices(merged, Inventory{Resources: two})
		if last := back["amd.com/gpu"][1]; !last.Healthy || last.Gone || len(changes) == 0 {
			t.Errorf("%s: changes %v, then %+v", name, changes, last)
		}
	}
}

// What is known stays near what is there, however often GPUs are divided anew: MIG devices get another ID
// each time. What went last is known still, and what may be there all the same. A few devices that went one
// after another are all known: the kubelet may give any of them before it has received the newest list.
func TestGoneAreForgotten(t *testing.T) {
	t.Parallel()
	const there = 56
	var known map[string][]Device
	for n := range 100 {
		found := Inventory{Resources: map[string][]Device{"nvidia.com/gpu": nil}}
		for i := range there {
			found.Resources["nvidia.com/gpu"] = append(found.Resources["nvidia.com/gpu"],
				Device{ID: fmt.Sprint("MIG-", n, "-", i), Healthy: true})
		}
		known, _ = mergeDevices(known, found)
		known, _ = mergeDevices(known, found) // a look at which nothing goes
		if got := len(known["nvidia.com/gpu"]); got < min(2, n+1)*there || got > maxGone+2*there {
			t.Fatalf("after %d divisions %d devices are known, of which %d are there", n+1, got, there)
		}
	}
	silent := topology.Address{Bus: 0x19}
	hidden := Inventory{Partial: true, Read: []topology.Address{{Bus: 0xa7}}}
	known = map[string][]Device{"nvidia.com/gpu": {
		{ID: "a", Card: silent, Healthy: true}, {ID: "b", Card: hidden.Read[0], Healthy: true},
		{ID: "c", Gone: true},
	}}
	for range 3 {
		known, _ = mergeDevices(known, hidden)
		var state []string
		for _, d := range known["nvidia.com/gpu"] {
			state = append(state, fmt.Sprint(d.ID, " ", d.Healthy, " ", d.Gone))
		}
		if want := []string{"a false false", "b false true", "c false true"}; !slices.Equal(state, want) {
			t.Errorf("one card is silent: %v, want %v", state, want)
		}
	}
}

// GPUs that fall off the bus one after another get their last edits: a container with one of them fails to
// start, instead of starting with fewer GPUs than its pod requests.
func TestSeveralAreGone(t *testing.T) {
	t.Parallel()
	inventory := func(ids ...string) Inventory {
		found := Inventory{Resources: map[string][]Device{"amd.com/gpu": nil}}
		for _, id := range ids {
			found.Resources["amd.com/gpu"] = append(found.Resources["amd.com/gpu"], Device{ID: id, Healthy: true})
		}
		return found
	}
	known, _ := mergeDevices(nil, inventory("a", "b", "c"))
	known, _ = mergeDevices(known, inventory("a", "b"))
	known, _ = mergeDevices(known, inventory("a"))
	var gone []string
	for _, d := range known["amd.com/gpu"] {
		if d.Gone {
			gone = append(gone, d.ID)
		}
	}
	if !slices.Equal(gone, []string{"b", "c"}) {
		t.Errorf("gone and known: %v", gone)
	}
}
