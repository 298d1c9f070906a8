// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/dra/claims"
	"github.com/tandem-k8s/tandem/topology"
)

// What claims have is known before anything is published, and stays known while the checkpoint cannot be
// read.
func TestUnreadCheckpoint(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := newViewer(Config{Log: log}, newComplaints(log), newGates(nil, "a", log),
		claims.New(claims.Options{Dir: dir, CDIDir: t.TempDir(), Log: log}))
	d.holders.holders.set(map[string]string{})
	d.gates.newest = features{Known: true, Counters: true, Taints: true}
	file := filepath.Join(dir, claims.FileName)
	for _, step := range []struct {
		what  string
		do    func() error
		known bool
		inUse int
	}{
		{"it cannot be read", func() error { return os.Mkdir(file, 0o750) }, false, 0},
		{"it can", func() error {
			err := os.Remove(file)
			prepared(t, dir, "one", "two")
			return err
		}, true, 2},
		{"it is damaged", func() error { return os.WriteFile(file, []byte("{"), 0o600) }, true, 2},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		d.update()
		if v := d.newest.get(); v.isKnown() != step.known || len(v.inUse) != step.inUse {
			t.Errorf("%s: known %v, in use %v", step.what, v.isKnown(), v.inUse)
		}
	}
}

// Before the kubelet's record of devices was read once nothing is published: a device plugin's pod may have
// any device. A record that is damaged later changes nothing.
func TestUnreadRecord(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	m := newMigrating(t)
	d := m.viewer
	var err error
	if d.machine.Tree, err = topology.Read(fstest.MapFS{"bus/pci/devices": {Mode: fs.ModeDir}}); err != nil {
		t.Fatal(err)
	}
	d.gates = newGates(nil, "a", log)
	d.preparer = claims.New(claims.Options{Dir: dir, CDIDir: t.TempDir(), Log: log})
	d.gates.newest = features{Known: true, Counters: true, Taints: true}
	file := kubelet.CheckpointPath(d.config.KubeletDir)
	for _, step := range []struct {
		what  string
		do    func() error
		known bool
		held  string
	}{
		{"it is damaged", func() error {
			return errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte("{"), 0o600))
		}, false, ""},
		{"there is none", func() error { return os.Remove(file) }, true, ""},
		{"it is there", func() error {
			m.record(map[string]string{"1": "a"})
			return nil
		}, true, "a pod with UID 1"},
		{"it is damaged again", func() error {
			return os.WriteFile(file, []byte("{"), 0o600)
		}, true, "a pod with UID 1"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		d.holders.update(t.Context(), d.machine)
		d.update()
		v := d.newest.get()
		held, _, _ := strings.Cut(v.State.Machine.GPUs[0].Held, ", ")
		if v.isKnown() != step.known || (v.State.Unread == nil) != step.known || held != step.held {
			t.Errorf("%s: known %v, %v, held by %q", step.what, v.isKnown(), v.State.Unread, held)
		}
	}
}
