// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/mode"
	"github.com/tandem-k8s/tandem/dra/claims/held"
)

// claimed writes the DRA driver's checkpoint, with a claim for some devices.
func claimed(t *testing.T, kubeletDir string, gpus ...string) {
	t.Helper()
	claims, err := json.Marshal([]map[string]any{{
		"namespace": "team", "name": "a", "devices": []map[string]any{{"gpus": gpus}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(kubeletDir, "plugins", mode.Driver, held.FileName)
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf(`{"version":1,"checksum":%d,"claims":%s}`, crc32.ChecksumIEEE(claims), claims)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWithheld: the devices of a claim are withheld until the claim is unprepared, together with their
// replicas; an unreadable file changes nothing.
func TestWithheld(t *testing.T) {
	dir := t.TempDir()
	if holders, _ := newWithheld(dir, slog.New(slog.DiscardHandler)).Latest(); len(holders) > 0 {
		t.Errorf("%v where there was never a claim", holders)
	}
	claimed(t, dir, "0000:11:00.0", "GPU-1")
	synctest.Test(t, func(t *testing.T) {
		w := newWithheld(dir, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		holders, changed := w.Latest()
		for id, want := range map[string]bool{
			"0000:11:00.0": true, "GPU-1": true, "GPU-1::3": true, "0000:12:00.0": false, "": false,
		} {
			if holders.Has(id) != want {
				t.Errorf("%q: %v", id, holders)
			}
		}
		if err := os.WriteFile(filepath.Join(w.dir, held.FileName), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * withheldPause)
		if holders, _ = w.Latest(); !holders.Has("GPU-1") {
			t.Error("a file that cannot be read frees devices")
		}
		claimed(t, dir, "GPU-1")
		<-changed
		if holders, changed = w.Latest(); holders.Has("0000:11:00.0") || !holders.Has("GPU-1") {
			t.Errorf("%v", holders)
		}
		claimed(t, dir)
		<-changed
		if holders, _ = w.Latest(); len(holders) > 0 {
			t.Errorf("%v", holders)
		}
	})
}
