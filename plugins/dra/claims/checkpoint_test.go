// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

func TestCheckpointRoundTrip(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claims := []Claim{
		{UID: "b", Namespace: "team", Name: "b", Required: true, Devices: []Prepared{
			{Request: "vfs", Pool: "node", Device: "vf-0c-00-2", VFs: []string{"<0000:0c:00.1>"},
				Token: "0000:0c:00.2", Group: "b-vfs", CDI: []string{"tandem.dev/claim=b-vfs"}},
			{Request: "gpus", Pool: "node", Device: "gpu-11-00-0", GPUs: []string{"0000:11:00.0"},
				With: "0000:0c:00.1", Parts: 1, Admin: true, Group: "b-vfs"},
		}},
		{UID: "a", Namespace: "team", Name: "a", Devices: []Prepared{{Device: "gpu-2f-00-0"}}},
	}
	if err := os.MkdirAll(n.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := n.saveClaims(claims); err != nil {
		t.Fatal(err)
	}
	got, err := n.Prepared(n.state.Machine)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Claim{claims[1], claims[0]}, got); diff != "" {
		t.Error(diff)
	}
}

// TestUnknownCheckpoint: while a checkpoint cannot be read, or is missing although claims have CDI specs,
// nothing is prepared, with the remedy, and the file stays as it is. Claims keep their files until they end,
// and a checkpoint that comes back counts.
func TestUnknownCheckpoint(t *testing.T) {
	for name, damage := range map[string]func(string) string{
		"cut short": func(text string) string { return text[:len(text)/2] },
		"empty":     func(string) string { return "" },
		"of another version": func(text string) string {
			return strings.Replace(text, `"version":1`, `"version":7`, 1)
		},
		"changed": func(text string) string { return strings.Replace(text, "train", "brain", 1) },
		"missing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			train := n.need("train", want{"pairs", pool.TypePair, 2})
			other := n.need("other", want{"pairs", pool.TypePair, 2})
			n.ready(train)
			file := filepath.Join(n.Dir, FileName)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var damaged []byte
			if damage != nil {
				damaged = []byte(damage(string(content)))
				err = os.WriteFile(file, damaged, 0o600)
			} else {
				err = os.Remove(file)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.Preparer = New(n.Options) // which has not known the claims
			_, err = n.Prepared(n.state.Machine)
			if !errors.Is(err, coordination.ErrUnknownClaims) || !strings.Contains(err.Error(), file) {
				t.Errorf("error %v", err)
			}
			for range 2 {
				if err := n.Restore(t.Context(), n.state); !errors.Is(err, coordination.ErrUnknownClaims) {
					t.Errorf("restored: %v", err)
				}
				for _, claim := range list(train, other) {
					err := n.Prepare(t.Context(), n.state, list(claim))[claim.UID].Err
					if err == nil || !strings.Contains(err.Error(), "then delete the file") {
						t.Errorf("prepared %s: %v", claim.Name, err)
					}
				}
				n.spec(train)
			}
			if after, _ := os.ReadFile(file); string(after) != string(damaged) {
				t.Errorf("the file is %q, was %q", after, damaged)
			}
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			n.ready(train)
			n.ready(other)
			n.check(train, other)
		})
	}
}

// TestEndOfUnknownClaims: pods can end while the record of claims cannot be read; without the file and the
// pods everything begins anew.
func TestEndOfUnknownClaims(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	train := n.need("train", want{"pairs", pool.TypePair, 2})
	n.ready(train)
	file := filepath.Join(n.Dir, FileName)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.end(train); err != nil {
		t.Fatal(err)
	}
	if exists(n.specPath(train.UID)) {
		t.Error("the CDI spec is left")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.Preparer = New(n.Options)
	other := n.need("other", want{"pairs", pool.TypePair, 2})
	n.ready(other)
	n.restored()
	n.check(other)
}

// A checkpoint that is there and cannot be read at all is no reason to begin anew.
func TestUnreadableFolder(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	if err := os.MkdirAll(filepath.Join(n.Dir, FileName), 0o750); err != nil {
		t.Fatal(err)
	}
	claim := n.need("train", want{"pairs", pool.TypePair, 1})
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

// Keys of a later version are passed over.
func TestUnknownKeysOfTheCheckpoint(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	n.ready(n.need("train", want{"pairs", pool.TypePair, 2}))
	file := filepath.Join(n.Dir, FileName)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(content), `{"version"`, `{"writer":"later","version"`, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Prepared(n.state.Machine); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
