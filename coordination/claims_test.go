// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"bytes"
	"context"
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

	"github.com/tandem-k8s/tandem/topology"
)

// A device of a claim is found by its unit, whatever its ID is now, and by its ID in the file of an earlier
// driver, which has no units. A MIG device excludes its GPU and no other MIG device.
func TestHolderOfRenamedDevice(t *testing.T) {
	dir := t.TempDir()
	const claims = `[{"namespace":"team","name":"new","devices":[{"gpus":["MIG-1"],` +
		`"units":{"MIG-1":"0000:81:00.0/7-0"},"vfs":["0000:0c:00.1"]}]},` +
		`{"namespace":"team","name":"next","devices":[{"gpus":["MIG-2"],"units":{"MIG-2":"0000:81:00.0/9-0"}}]},` +
		`{"namespace":"team","name":"old","devices":[{"gpus":["GPU-2"]}]}]`
	content := fmt.Sprintf(`{"version":1,"checksum":%d,"claims":%s}`, crc32.ChecksumIEEE([]byte(claims)), claims)
	if err := os.WriteFile(filepath.Join(dir, ClaimsFile), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := ReadClaimHolders(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, unit, want string }{
		{"MIG-renamed", "0000:81:00.0/7-0", "claim team/new"},
		{"GPU-1", "0000:81:00.0", "claim team/new"},
		{"MIG-1", "0000:81:00.0/8-0", ""}, // the ID is another device's now
		{"rdma.sf.1", "0000:0c:00.1", "claim team/new"},
		{"GPU-2::0", "0000:c1:00.0", "claim team/old"},
		{"GPU-3", "0000:d1:00.0", ""},
	} {
		for range 10 { // always the same of several holders
			if got := held.Of(c.id, topology.Unit{Name: c.unit}); got != c.want {
				t.Errorf("%s, unit %s: held by %q, want %q", c.id, c.unit, got, c.want)
			}
		}
	}
}

// hasHolder reports whether a device has a holder.
func hasHolder(holders ClaimHolders, id string) bool {
	return holders.Has(id, topology.UnitOfID(id))
}

// writeClaim writes the DRA driver's checkpoint, with a claim for some devices.
func writeClaim(t *testing.T, kubeletDir string, gpus ...string) {
	t.Helper()
	content := encodeClaim(t, map[string]any{
		"namespace": "team", "name": "a", "devices": []map[string]any{{"gpus": gpus}},
	})
	name := filepath.Join(kubeletDir, "plugins", DRADriver, ClaimsFile)
	err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, []byte(content), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// encodeClaim returns the content of a checkpoint with a claim.
func encodeClaim(t *testing.T, claim map[string]any) string {
	t.Helper()
	content, err := EncodeClaims([]map[string]any{claim})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestWithheld: the devices of a claim are withheld until the claim is unprepared, together with their
// replicas; an unreadable file changes nothing.
func TestWithheld(t *testing.T) {
	dir := t.TempDir()
	if holders := newClaimWatch(dir, "", slog.New(slog.DiscardHandler)).newest.Get(); len(holders) > 0 {
		t.Errorf("%v where there was never a claim", holders)
	}
	writeClaim(t, dir, "0000:11:00.0", "GPU-1")
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWatch(dir, "", slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.run(ctx)
		holders, changed := w.newest.Watch()
		for id, want := range map[string]bool{
			"0000:11:00.0": true, "GPU-1": true, "GPU-1::3": true, "0000:12:00.0": false, "": false,
		} {
			if hasHolder(holders, id) != want {
				t.Errorf("%q: %v", id, holders)
			}
		}
		if err := os.WriteFile(filepath.Join(w.dir, ClaimsFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * claimsPause)
		if holders = w.newest.Get(); !hasHolder(holders, "GPU-1") {
			t.Error("a file that cannot be read frees devices")
		}
		err := errors.Join(os.WriteFile(filepath.Join(w.dir, ClaimsLock), nil, 0o600),
			os.Remove(filepath.Join(w.dir, ClaimsFile)))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * claimsPause)
		if holders = w.newest.Get(); !hasHolder(holders, "GPU-1") {
			t.Error("a file that is gone frees devices")
		}
		writeClaim(t, dir, "GPU-1")
		<-changed
		if holders, changed = w.newest.Watch(); hasHolder(holders, "0000:11:00.0") || !hasHolder(holders, "GPU-1") {
			t.Errorf("%v", holders)
		}
		writeClaim(t, dir)
		<-changed
		if holders = w.newest.Get(); len(holders) > 0 {
			t.Errorf("%v", holders)
		}
	})
}

// TestNeverPrepared: a driver that has prepared no claim withholds nothing, as the CDI specifications show.
func TestNeverPrepared(t *testing.T) {
	dir, cdi := t.TempDir(), t.TempDir()
	lock := filepath.Join(dir, "plugins", DRADriver, ClaimsLock)
	spec := filepath.Join(cdi, ClaimSpecName("uid"))
	err := errors.Join(os.MkdirAll(filepath.Dir(lock), 0o750), os.WriteFile(lock, nil, 0o600),
		os.WriteFile(filepath.Join(cdi, "other.json"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if holders := newClaimWatch(dir, cdi, log).newest.Get(); len(holders) > 0 {
		t.Errorf("withheld without a specification: %v", holders)
	}
	unseen := filepath.Join(cdi, "not mounted")
	if holders := newClaimWatch(dir, unseen, log).newest.Get(); !hasHolder(holders, "GPU-1") {
		t.Error("a folder that nobody sees frees devices")
	}
	if err := os.WriteFile(spec, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holders := newClaimWatch(dir, cdi, log).newest.Get(); !hasHolder(holders, "GPU-1") {
		t.Error("a claim with a specification has no devices")
	}
}

// TestWithheldUnknown: without an earlier read, a file that does not tell the devices of all claims withholds
// all devices, with a remark that names the file and why, until it can be read.
func TestWithheldUnknown(t *testing.T) {
	for name, c := range map[string]struct{ content, why string }{
		"damaged":          {`{"version":1,`, "unexpected end"},
		"gone":             {"", "the file is gone"},
		"a newer version":  {`{"version":2,"checksum":0,"claims":[]}`, "newer version"},
		"another checksum": {`{"version":1,"checksum":99,"claims":[]}`, "checksum"},
		// an earlier version of the DRA driver wrote such a claim in place of a damaged file
		"an adopted claim": {
			encodeClaim(t, map[string]any{"uid": "uid-1", "namespace": "", "name": "", "devices": nil}), "UID uid-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeClaim(t, dir)
			log := &bytes.Buffer{}
			file := filepath.Join(dir, "plugins", DRADriver, ClaimsFile)
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.content == "" {
				lock := filepath.Join(filepath.Dir(file), ClaimsLock)
				if err := errors.Join(os.Remove(file), os.WriteFile(lock, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			w := newClaimWatch(dir, "", slog.New(slog.NewTextHandler(log, nil)))
			for range 3 {
				w.readClaims()
			}
			if holders := w.newest.Get(); !hasHolder(holders, "0000:11:00.0") || !hasHolder(holders, "GPU-1::3") {
				t.Errorf("withheld: %v", holders)
			}
			remark := w.newest.Get().Why()
			for _, words := range []string{file, c.why, ErrUnknownClaims.Error(), ClaimsRemedy(w.dir)} {
				if !strings.Contains(remark, words) {
					t.Errorf("remark %q lacks %q", remark, words)
				}
			}
			if told := strings.Count(log.String(), "level=ERROR"); told != 1 {
				t.Errorf("told %d times: %s", told, log)
			}
			_, changed := w.newest.Watch()
			writeClaim(t, dir, "GPU-1")
			w.readClaims()
			<-changed
			holders := w.newest.Get()
			if hasHolder(holders, "0000:11:00.0") || !hasHolder(holders, "GPU-1") || holders.Why() != "" {
				t.Errorf("once it can be read: %v, %s", holders, holders.Why())
			}
		})
	}
}
