// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/machines"
)

func recordedSys(t testing.TB) fs.FS {
	t.Helper()
	sys, err := sysfs()
	if err != nil {
		t.Fatal(err)
	}
	return sys
}

var sysfs = sync.OnceValues(func() (fs.FS, error) {
	recorded, err := machines.Load("oci-mi300x-derived", 1)
	if err != nil {
		return nil, err
	}
	return recorded.FS(), nil
})

// TestCoalesced: changes within a short time are written once, afterwards; unchanged content is not written.
func TestCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newNode(t, "a"), newServer("a")
		stop := run(t, n.publisher(t, s), n)
		defer stop()
		wait(t, time.Second)
		first, _, _ := s.counts()
		begin := time.Now()
		for count := range 8 {
			n.healthy(count)
			wait(t, 20*time.Millisecond)
		}
		wait(t, time.Second)
		writes, _, _ := s.counts()
		if len(first) != 1 || len(writes) != 2 {
			t.Fatalf("%d writes, then %d", len(first), len(writes)-len(first))
		}
		if late := writes[1].Sub(begin); late < publish.Coalesce || late > publish.Coalesce+publish.Jitter {
			t.Errorf("written after %v", late)
		}
		if got := s.at(topologyOf("a"), "spec", "summary", "gpus"); got != "7/7" {
			t.Errorf("GPUs %v", got)
		}
		for range 100 {
			n.events <- publish.Written
			wait(t, time.Minute)
		}
		if again, _, _ := s.counts(); len(again) != 2 {
			t.Errorf("%d writes of what is there", len(again)-2)
		}
	})
}

// TestObject: the object's fields besides its specification.
func TestObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newNode(t, "a"), newServer("a")
		stop := run(t, n.publisher(t, s), n)
		wait(t, time.Second)
		stop()
		want := map[string]any{
			"name": "a", "labels": map[string]any{"app.kubernetes.io/managed-by": "tandem"},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-of-a"}},
		}
		if diff := cmp.Diff(want, s.at(topologyOf("a"), "metadata")); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		if got := s.at(topologyOf("a"), "spec", "kubelet", "version"); got != "v1.37.1" {
			t.Errorf("version %v", got)
		}
	})
}

// TestStart: a daemon that starts with everything up to date writes nothing, and reads the object and the
// Node at most every five minutes.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newNode(t, "a"), newServer("a")
		run1 := run(t, n.publisher(t, s), n)
		wait(t, time.Second)
		run1()
		_, before, _ := s.counts()
		run2 := run(t, n.publisher(t, s), n)
		defer run2()
		wait(t, time.Hour)
		if writes, reads, _ := s.counts(); len(writes) != 1 || reads-before < 2+2*9 || reads-before > 2+2*12 {
			t.Errorf("%d writes, %d reads in the hour after the second start", len(writes)-1, reads-before)
		}
		// a restarted kubelet can belong to a recreated Node, whose objects are gone
		s.set(func(s *server) {
			delete(s.objects, topologyOf("a"))
			s.objects["/api/v1/nodes/a"]["metadata"].(map[string]any)["uid"] = "another"
		})
		n.events <- publish.Started
		wait(t, time.Second)
		if got := s.at(topologyOf("a"), "spec"); got == nil {
			t.Error("nothing is published of the node that was made anew")
		}
	})
}

// TestEnforcement: the label follows the last answers of the sources of pod requests within a second.
func TestEnforcement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newNode(t, "a"), newServer("a")
		stop := run(t, n.publisher(t, s, "nfd"), n)
		defer stop()
		for _, source := range []intent.Source{"", intent.PodsAPI, ""} {
			n.enforce(source)
			wait(t, time.Second)
			got := s.at(featureOfA, "spec", "labels", "tandem.dev/alignment-enforced")
			if want := fmt.Sprint(source != ""); got != want {
				t.Errorf("source %q: label %v, want %s", source, got, want)
			}
		}
	})
}

// TestDeleted: an object that others delete or change is written again without a change on the node, for each
// kind of object; also after a recreation of the Node without an event.
func TestDeleted(t *testing.T) {
	paths := []string{topologyOf("a"), zonesOfA, featureOfA}
	metadata := func(s *server, path string) map[string]any {
		return s.objects[path]["metadata"].(map[string]any)
	}
	for _, c := range []struct {
		what   string
		change func(s *server, path string)
		writes int
	}{
		{"deleted", func(s *server, path string) { delete(s.objects, path) }, 3},
		{"empty", func(s *server, path string) { s.objects[path]["spec"], s.objects[path]["zones"] = nil, nil }, 3},
		{"not owned", func(s *server, path string) { delete(metadata(s, path), "ownerReferences") }, 3},
		{"Node is new", func(s *server, _ string) { metadata(s, "/api/v1/nodes/a")["uid"] = "another" }, 3},
		{"of no node for NFD", func(s *server, path string) {
			metadata(s, path)["labels"] = map[string]any{"app.kubernetes.io/managed-by": "tandem", "team": "a"}
		}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := newNode(t, "a"), newServer("a")
			stop := run(t, n.publisher(t, s, "tandem", "nrt", "nfd"), n)
			defer stop()
			wait(t, time.Hour)
			want := map[string]map[string]any{}
			s.set(func(s *server) {
				for _, path := range paths {
					want[path] = s.objects[path]
					s.objects[path] = maps.Clone(s.objects[path])
					s.objects[path]["metadata"] = maps.Clone(metadata(s, path))
					c.change(s, path)
				}
			})
			wait(t, 7*time.Minute)
			for _, path := range paths {
				owners, _ := s.at(path, "metadata", "ownerReferences").([]any)
				if len(owners) != 1 || owners[0].(map[string]any)["uid"] != s.at("/api/v1/nodes/a", "metadata", "uid") {
					t.Errorf("%s: %s belongs to %v", c.what, path, owners)
				}
				for _, key := range []string{"spec", "zones"} {
					if diff := cmp.Diff(want[path][key], s.at(path, key)); diff != "" {
						t.Errorf("%s: %s is not written again: %s (-want +got):\n%.400s", c.what, path, key, diff)
					}
				}
			}
			if node := s.at(featureOfA, "metadata", "labels", "nfd.node.kubernetes.io/node-name"); node != "a" {
				t.Errorf("%s: the NodeFeature is of node %v", c.what, node)
			}
			if writes, _, _ := s.counts(); len(writes) != 3+c.writes {
				t.Errorf("%s: %d writes, want %d", c.what, len(writes)-3, c.writes)
			}
		})
	}
}

// TestTenMinutesAway: while the API server is away and devices change constantly, nothing accumulates; within
// a second of its return the newest state is published.
func TestTenMinutesAway(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { tenMinutesAway(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func tenMinutesAway(t *testing.T, random *rand.Rand) {
	n, s := newNode(t, "a"), newServer("a")
	p := n.publisher(t, s)
	stop := run(t, p, n)
	wait(t, time.Second)
	s.set(func(s *server) { s.away = true })
	_, _, before := s.counts()
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
		n.healthy(1 + random.IntN(7))
		wait(t, time.Duration(random.IntN(1000))*time.Millisecond)
	}
	n.healthy(8)
	wait(t, time.Duration(random.IntN(1000))*time.Millisecond)
	writes, _, tries := s.counts()
	if len(writes) != 1 || len(tries)-len(before) > 20 {
		t.Errorf("%d writes, %d requests while nobody can connect", len(writes)-1, len(tries)-len(before))
	}
	if notes := p.Notes(); len(notes) != 1 || !strings.Contains(notes[0], errAway.Error()) {
		t.Errorf("people are told %q", notes)
	}
	s.set(func(s *server) { s.away = false })
	wait(t, time.Second)
	if notes := p.Notes(); notes != nil {
		t.Errorf("people are told %q", notes)
	}
	if got := s.at(topologyOf("a"), "spec", "summary", "gpus"); got != "8/8" {
		t.Errorf("GPUs %v a second after its return", got)
	}
	stop()
	if text := n.log.String(); strings.Count(text, "is outdated") != 1 ||
		strings.Count(text, "works again") != 1 {
		t.Errorf("log:\n%s", text)
	}
	if n.failed == 0 || n.written > 3 { // the last change may have been coalesced at the return
		t.Errorf("%d failed, %d written", n.failed, n.written)
	}
}

// TestRefused: a refusing API server gets fewer and fewer requests, independent of changes.
func TestRefused(t *testing.T) {
	for _, status := range []int{403, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			n, s := newNode(t, "a"), newServer("a")
			stop := run(t, n.publisher(t, s), n)
			defer stop()
			wait(t, time.Second)
			s.set(func(s *server) { s.status = status })
			_, _, before := s.counts()
			for range 360 {
				n.healthy(rand.IntN(8))
				wait(t, 10*time.Second)
			}
			_, _, tries := s.counts()
			// 7 within the first two minutes, and then at most one every two minutes
			if asked := len(tries) - len(before); asked < 24 || asked > 40 {
				t.Errorf("%d: asked %d times in an hour", status, asked)
			}
			s.set(func(s *server) { s.status = 0 })
			n.healthy(8)
			wait(t, 150*time.Second)
			if got := s.at(topologyOf("a"), "spec", "summary", "gpus"); got != "8/8" {
				t.Errorf("GPUs %v", got)
			}
		})
	}
}
