package dra

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/dra/claims"
)

// What claims have is known before anything is published, and stays known while the checkpoint cannot be
// read.
func TestUnreadCheckpoint(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := &Driver{
		Config: Config{Log: log}, gates: newGates(nil, "a", log), newest: newLatest(&view{}),
		holders:  newLatest(map[string]string(nil)),
		preparer: claims.New(claims.Options{Dir: dir, CDIDir: t.TempDir(), Log: log}),
	}
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
		d.put()
		if v := d.newest.get(); v.isKnown() != step.known || len(v.inUse) != step.inUse {
			t.Errorf("%s: known %v, in use %v", step.what, v.isKnown(), v.inUse)
		}
	}
}
