// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unhealthy lists the devices that are not healthy, and the notes.
func unhealthy(t *testing.T, b *Backend) (ids, notes []string) {
	t.Helper()
	inventory, err := b.Discover()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range inventory.Resources["amd.com/gpu"] {
		if !d.Healthy {
			ids = append(ids, d.ID)
		}
		if d.Healthy != (d.Reason == "") {
			t.Errorf("%s: healthy %t, reason %q", d.ID, d.Healthy, d.Reason)
		}
	}
	return ids, inventory.Notes
}

func TestOtherSourcesOfHealth(t *testing.T) {
	t.Attr("parity", "amd/health-exporter")
	backend, err := New(twoCards().fs(), Single)
	if err != nil {
		t.Fatal(err)
	}
	var found map[string]bool
	var problem error
	backend.Heed("the first", func(context.Context) (map[string]bool, error) { return found, problem })
	backend.Heed("the second", func(context.Context) (map[string]bool, error) {
		return map[string]bool{"0000:A7:00.0": true}, nil
	})
	for _, c := range []struct {
		name  string
		found map[string]bool
		err   error
		want  []string
		note  string
	}{
		{"knows nothing", nil, nil, nil, ""},
		{"all is well", map[string]bool{"0000:19:00.0": true}, nil, nil, ""},
		{"a GPU", map[string]bool{"0000:19:00.0": false}, nil, []string{"0000:19:00.0"},
			"0000:19:00.0: unhealthy, says the first"},
		{"well again", map[string]bool{"0000:19:00.0": true}, nil, nil, ""},
		{"a card with its partitions", map[string]bool{"0000:A7:00.0": false}, nil,
			[]string{"0000:a7:00.0", "amdgpu_xcp.3", "amdgpu_xcp_0"}, "amdgpu_xcp_0: unhealthy, says the first"},
		{"a card without one partition", map[string]bool{"0000:a7:00.0": false, "amdgpu_xcp_0": true}, nil,
			[]string{"0000:a7:00.0", "amdgpu_xcp.3"}, "says the first"},
		{"no answer", map[string]bool{"0000:19:00.0": false}, errors.New("away"), nil,
			"health of the GPUs is judged without the first: away"},
		{"strangers", map[string]bool{"0000:ff:00.0": false, "": false}, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, problem = c.found, c.err
			ids, notes := unhealthy(t, backend)
			if diff := cmp.Diff(c.want, ids); diff != "" {
				t.Error(diff)
			}
			if text := strings.Join(notes, "\n"); !strings.Contains(text, c.note) || c.note == "" && text != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// TestSlowSourceOfHealth: it delays the start by half a second and a pulse by five.
func TestSlowSourceOfHealth(t *testing.T) {
	t.Attr("parity", "amd/health-exporter")
	synctest.Test(t, func(t *testing.T) {
		backend, err := New(twoCards().fs(), Single)
		if err != nil {
			t.Fatal(err)
		}
		backend.Heed("the exporter", func(ctx context.Context) (map[string]bool, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for _, want := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 5 * time.Second} {
			began := time.Now()
			ids, notes := unhealthy(t, backend)
			if got := time.Since(began); got != want || len(ids) != 0 || len(notes) != 1 {
				t.Errorf("after %s, want %s: unhealthy %v, notes %q", got, want, ids, notes)
			}
		}
	})
}
