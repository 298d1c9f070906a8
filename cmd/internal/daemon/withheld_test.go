// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/topology"
)

// has reports whether a device has a holder.
func has(holders coordination.ClaimHolders, id string) bool {
	return holders.Has(id, topology.UnitOfID(id))
}

// claimed writes the DRA driver's checkpoint, with a claim for some devices.
func claimed(t *testing.T, kubeletDir string, gpus ...string) {
	t.Helper()
	claims, err := json.Marshal([]map[string]any{{
		"namespace": "team", "name": "a", "devices": []map[string]any{{"gpus": gpus}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(kubeletDir, "plugins", coordination.DRADriver, coordination.ClaimsFile)
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
	if holders, _ := newWithheld(dir, "", slog.New(slog.DiscardHandler)).Latest(); len(holders) > 0 {
		t.Errorf("%v where there was never a claim", holders)
	}
	claimed(t, dir, "0000:11:00.0", "GPU-1")
	synctest.Test(t, func(t *testing.T) {
		w := newWithheld(dir, "", slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		holders, changed := w.Latest()
		for id, want := range map[string]bool{
			"0000:11:00.0": true, "GPU-1": true, "GPU-1::3": true, "0000:12:00.0": false, "": false,
		} {
			if has(holders, id) != want {
				t.Errorf("%q: %v", id, holders)
			}
		}
		if err := os.WriteFile(filepath.Join(w.dir, coordination.ClaimsFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * withheldPause)
		if holders, _ = w.Latest(); !has(holders, "GPU-1") {
			t.Error("a file that cannot be read frees devices")
		}
		err := errors.Join(os.WriteFile(filepath.Join(w.dir, coordination.ClaimsLock), nil, 0o600),
			os.Remove(filepath.Join(w.dir, coordination.ClaimsFile)))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * withheldPause)
		if holders, _ = w.Latest(); !has(holders, "GPU-1") {
			t.Error("a file that is gone frees devices")
		}
		claimed(t, dir, "GPU-1")
		<-changed
		if holders, changed = w.Latest(); has(holders, "0000:11:00.0") || !has(holders, "GPU-1") {
			t.Errorf("%v", holders)
		}
		claimed(t, dir)
		<-changed
		if holders, _ = w.Latest(); len(holders) > 0 {
			t.Errorf("%v", holders)
		}
	})
}

// TestNeverPrepared: a driver that has prepared no claim withholds nothing, as the CDI specifications show.
func TestNeverPrepared(t *testing.T) {
	dir, cdi := t.TempDir(), t.TempDir()
	lock := filepath.Join(dir, "plugins", coordination.DRADriver, coordination.ClaimsLock)
	spec := filepath.Join(cdi, coordination.ClaimSpecPrefix+"uid"+coordination.ClaimSpecSuffix)
	err := errors.Join(os.MkdirAll(filepath.Dir(lock), 0o750), os.WriteFile(lock, nil, 0o600),
		os.WriteFile(filepath.Join(cdi, "other.json"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if holders, _ := newWithheld(dir, cdi, log).Latest(); len(holders) > 0 {
		t.Errorf("withheld without a specification: %v", holders)
	}
	if holders, _ := newWithheld(dir, filepath.Join(cdi, "not mounted"), log).Latest(); !has(holders, "GPU-1") {
		t.Error("a folder that nobody sees frees devices")
	}
	if err := os.WriteFile(spec, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holders, _ := newWithheld(dir, cdi, log).Latest(); !has(holders, "GPU-1") {
		t.Error("a claim with a specification has no devices")
	}
}

// TestWithheldUnknown: without an earlier read, a file that does not tell the devices of all claims withholds
// all devices, with a remark that names the file, until it can be read.
func TestWithheldUnknown(t *testing.T) {
	adopted, err := json.Marshal([]map[string]any{
		{"uid": "uid-train", "namespace": "", "name": "", "devices": nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"damaged":         "{",
		"gone":            "",
		"a newer version": `{"version":2,"checksum":0,"claims":[]}`,
		// an earlier version of the DRA driver wrote such a claim in place of a damaged file
		"an adopted claim": fmt.Sprintf(`{"version":1,"checksum":%d,"claims":%s}`,
			crc32.ChecksumIEEE(adopted), adopted),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			claimed(t, dir)
			log := &bytes.Buffer{}
			file := filepath.Join(dir, "plugins", coordination.DRADriver, coordination.ClaimsFile)
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if content == "" {
				lock := filepath.Join(filepath.Dir(file), coordination.ClaimsLock)
				if err := errors.Join(os.Remove(file), os.WriteFile(lock, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			w := newWithheld(dir, "", slog.New(slog.NewTextHandler(log, nil)))
			for range 3 {
				w.readClaims()
			}
			if holders, _ := w.Latest(); !has(holders, "0000:11:00.0") || !has(holders, "GPU-1::3") {
				t.Errorf("withheld: %v", holders)
			}
			remark, remedy := w.Remark(), coordination.ClaimsRemedy(w.dir)
			if !strings.Contains(remark, file) || !strings.Contains(remark, remedy) {
				t.Errorf("remark %q", remark)
			}
			if told := strings.Count(log.String(), "level=ERROR"); told != 1 {
				t.Errorf("told %d times: %s", told, log)
			}
			_, changed := w.Latest()
			claimed(t, dir, "GPU-1")
			w.readClaims()
			<-changed
			if holders, _ := w.Latest(); has(holders, "0000:11:00.0") || !has(holders, "GPU-1") || w.Remark() != "" {
				t.Errorf("once it can be read: %v, %s", holders, w.Remark())
			}
		})
	}
}
