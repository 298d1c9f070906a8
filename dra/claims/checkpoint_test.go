// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/file"
	"github.com/tandem-k8s/tandem/dra/pool"
)

func TestCheckpointRoundTrip(t *testing.T) {
	dir := t.TempDir()
	claims := []Claim{
		{UID: "b", Namespace: "team", Name: "b", Devices: []Prepared{
			{Request: "vfs", Pool: "node", Device: "vf-0c-00-2", VFs: []string{"<0000:0c:00.1>"},
				Token: "0000:0c:00.2", Group: "b-vfs", CDI: []string{"tandem.dev/claim=b-vfs"}},
			{Request: "gpus", Pool: "node", Device: "gpu-11-00-0", GPUs: []string{"0000:11:00.0"},
				With: "0000:0c:00.1", Admin: true, Group: "b-vfs"},
		}},
		{UID: "a", Namespace: "team", Name: "a"},
	}
	content, err := encodeCheckpoint(claims)
	if err != nil {
		t.Fatal(err)
	}
	if err := (file.Disk{}).ReplaceDurably(filepath.Join(dir, FileName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Claim{claims[1], claims[0]}, got); diff != "" {
		t.Error(diff)
	}
}

// A checkpoint that cannot be read is set aside, with one sentence. Claims that are prepared keep their files
// until they end, also when the process starts again, and what they have nobody else can get.
func TestDamagedCheckpoint(t *testing.T) {
	for name, damage := range map[string]func(string) string{
		"cut short": func(text string) string { return text[:len(text)/2] },
		"empty":     func(string) string { return "" },
		"of another version": func(text string) string {
			return strings.Replace(text, `"version":1`, `"version":7`, 1)
		},
		"changed": func(text string) string { return strings.Replace(text, "train", "brain", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			train := n.need("train", want{"pairs", pool.Pair, 2})
			n.ready(train)
			file := filepath.Join(n.Dir, FileName)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			damaged := damage(string(content))
			if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Prepared(); !errors.Is(err, errUnreadable) || !strings.Contains(err.Error(), file) {
				t.Errorf("error %v", err)
			}
			for range 2 {
				n.restored()
				n.spec(train)
			}
			if said := strings.Count(n.log.String(), "replaced the checkpoint of claims"); said != 1 {
				t.Errorf("said %d times: %s", said, n.log)
			}
			bad, err := os.ReadFile(filepath.Join(n.Dir, BadName))
			if err != nil || string(bad) != damaged {
				t.Errorf("set aside %q, %v", bad, err)
			}
			other := n.need("other", want{"pairs", pool.Pair, 2})
			n.ready(other)
			if again := n.ready(train); len(again) != 2 {
				t.Errorf("prepared again: %v", again)
			}
			n.check(train, other)
			for _, claim := range list(train, other) {
				if err := n.end(claim); err != nil {
					t.Fatal(err)
				}
			}
			n.check()
		})
	}
}

// Keys of a later version are passed over.
func TestUnknownKeysOfTheCheckpoint(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claims := []Claim{{UID: "a"}}
	content, err := encodeCheckpoint(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(content), `{"version"`, `{"writer":"later","version"`, 1)
	if err := os.MkdirAll(n.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.Dir, FileName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Prepared(); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// A checkpoint that is there and cannot be read at all is no reason to begin anew.
func TestUnreadableFolder(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	if err := os.MkdirAll(filepath.Join(n.Dir, FileName), 0o750); err != nil {
		t.Fatal(err)
	}
	claim := n.need("train", want{"pairs", pool.Pair, 1})
	err := n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err
	if err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("error %v", err)
	}
	if err := n.end(claim); err == nil {
		t.Error("ended without knowing what there is")
	}
	if err := n.Restore(t.Context(), n.state); err == nil {
		t.Error("restored without knowing what there is")
	}
}

// Many calls of two processes at the same time lose nothing.
func TestManyCalls(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	second := New(n.Options)
	var claims []*claimOf
	for i := range 6 {
		claims = append(claims, n.need(string(rune('a'+i)), want{"pairs", pool.Pair, 1}))
	}
	var work sync.WaitGroup
	for i, claim := range claims {
		p := []*Preparer{n.Preparer, second}[i%2]
		work.Go(func() {
			for range 5 {
				if err := p.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err; err != nil {
					t.Error(err)
				}
				object := kubeletplugin.NamespacedObject{UID: claim.UID}
				if err := p.Unprepare(t.Context(), []kubeletplugin.NamespacedObject{object})[claim.UID]; err != nil {
					t.Error(err)
				}
			}
			if err := p.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err; err != nil {
				t.Error(err)
			}
		})
	}
	work.Go(func() {
		for range 10 {
			if err := second.Restore(t.Context(), n.state); err != nil {
				t.Error(err)
			}
		}
	})
	work.Wait()
	n.check(claims...)
}
