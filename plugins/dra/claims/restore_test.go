// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/disk"
)

// boot takes what is in a tmpfs.
func (n *node) boot() {
	n.t.Helper()
	for _, dir := range []string{n.CDIDir, n.Host.PairsDir, n.Host.DevinfoDir} {
		if err := os.RemoveAll(dir); err != nil {
			n.t.Fatal(err)
		}
	}
}

// After a boot VFs can come late: until then the kubelet is not told that a claim is prepared whose CDI spec
// is not there, for it asks once.
func TestBootWithLateVFs(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2})
	other := n.need("other", want{"gpu", pool.TypeGPU, 1})
	n.ready(claim)
	n.ready(other)
	n.boot()
	whole := n.state
	n.state.Machine.VFs = nil // sriov_numvfs is 0 until somebody writes it
	n.state.Pool = pool.Build(n.state.Machine, pool.Options{Counters: true, Taints: true})
	if err := n.Restore(t.Context(), n.state); err == nil || !strings.Contains(err.Error(), "claim team/train") {
		t.Errorf("restore: %v", err)
	}
	if n.Complete() {
		t.Error("complete without a CDI spec")
	}
	answers := n.Prepare(t.Context(), n.state, list(claim, other))
	gone := "find VF " + n.prepared(claim.UID).Devices[0].VFs[0] + ": it is gone"
	for _, part := range []string{n.specPath(claim.UID), gone} {
		if err := answers[claim.UID].Err; err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the kubelet is told %v, want %q in it", err, part)
		}
	}
	if err := answers[other.UID].Err; err != nil {
		t.Errorf("a claim whose CDI spec is there: %v", err)
	}
	n.state = whole
	if err := n.Restore(t.Context(), n.state); err != nil {
		t.Fatal(err)
	}
	if !n.Complete() {
		t.Error("not complete with the VFs")
	}
	n.ready(claim)
	n.check(claim, other)
}

// A file that is gone is missed, and comes back.
func TestComplete(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2})
	n.ready(claim)
	for _, name := range []string{n.specPath(claim.UID), n.pairsPath("uid-train-pairs")} {
		if !n.Complete() {
			t.Fatalf("not complete: %s", n.findMissing(n.prepared(claim.UID)))
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if n.Complete() {
			t.Errorf("complete without %s", name)
		}
		if err := n.Restore(t.Context(), n.state); err != nil {
			t.Fatal(err)
		}
		n.check(claim)
	}
	other := []byte(`{"kind":"tandem.dev/claim"}`)
	if err := os.WriteFile(n.specPath(claim.UID), other, 0o600); err != nil {
		t.Fatal(err)
	}
	if n.Complete() {
		t.Error("complete with a spec that lacks the devices")
	}
	if err := n.Restore(t.Context(), n.state); err != nil {
		t.Fatal(err)
	}
	n.check(claim)
}

// An outdated file whose write fails stays, with one line in the log, and the next repair writes it. So it is
// with a lost device-info file.
func TestOutdatedFilesAreWrittenLater(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2})
	n.ready(claim)
	spec := n.specPath(claim.UID)
	whole, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spec, append(whole, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.disk.During(1, disk.Fails, func() { err = n.Restore(t.Context(), n.state) })
		if content, unread := os.ReadFile(spec); err != nil || unread != nil || len(content) != len(whole)+1 {
			t.Errorf("%v, %v: %d bytes", err, unread, len(content))
		}
	}
	if told := strings.Count(n.log.String(), "keeps its existing CDI spec"); told != 1 {
		t.Errorf("told %d times: %s", told, n.log)
	}
	infos, err := filepath.Glob(filepath.Join(n.Host.DevinfoDir, "*"))
	if err != nil || len(infos) != 2 {
		t.Fatalf("device-info files %v, %v", infos, err)
	}
	if err := os.Remove(infos[0]); err != nil {
		t.Fatal(err)
	}
	if err := n.Restore(t.Context(), n.state); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(spec); err != nil || string(content) != string(whole) {
		t.Errorf("%v: %s", err, content)
	}
	if _, err := os.Stat(infos[0]); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(spec, append(whole, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	n.disk.During(1, disk.Fails, func() { err = n.Restore(t.Context(), n.state) })
	if told := strings.Count(n.log.String(), "keeps its existing CDI spec"); told != 2 {
		t.Errorf("two failures, told %d times: %s", told, n.log)
	}
}

// TestLostCheckpoint: a checkpoint that is gone is not an empty one; the process that has written it writes
// it again, unless another process has prepared a claim since.
func TestLostCheckpoint(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	train := n.need("train", want{"pairs", pool.TypePair, 2})
	other := n.need("other", want{"pairs", pool.TypePair, 1})
	n.ready(train)
	file := filepath.Join(n.Dir, FileName)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.ready(other)
	n.restored()
	n.check(train, other)
	if said := strings.Count(n.log.String(), "the record of claims is gone"); said != 1 {
		t.Errorf("said %d times: %s", said, n.log)
	}
	second, third := New(n.Options), n.need("third", want{"pairs", pool.TypePair, 1})
	if err := n.prepareBy(second, n.state, third)[third.UID].Err; err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := n.Restore(t.Context(), n.state); !errors.Is(err, coordination.ErrUnknownClaims) {
		t.Errorf("restored by a process that does not know all claims: %v", err)
	}
	if err := second.Restore(t.Context(), n.state); err != nil {
		t.Error(err)
	}
	n.check(train, other, third)
}

// TestLostCheckpointAfterAFailedSave: a checkpoint that is gone after a write has failed is written again, as
// it was before. What the write should have changed is not answered yet.
func TestLostCheckpointAfterAFailedSave(t *testing.T) {
	for step, struck := 1, disk.Fails; struck == disk.Fails; step++ {
		n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
		train := n.need("train", want{"pairs", pool.TypePair, 2})
		other := n.need("other", want{"pairs", pool.TypePair, 1})
		n.ready(train, other)
		var err error
		if struck = n.disk.During(step, disk.Fails, func() { err = n.end(train) }); err == nil {
			continue
		}
		if err := os.Remove(filepath.Join(n.Dir, FileName)); err != nil {
			t.Fatal(err)
		}
		n.restored()
		n.check(train, other)
	}
}

// A repair waits for nobody.
func TestRepairDoesNotWait(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, plainVFs, true)
	release, err := lockFolder(n.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Repair(t.Context(), n.state); !errors.Is(err, ErrBusy) {
		t.Errorf("beside another call: %v", err)
	}
	release()
	if err := n.Repair(t.Context(), n.state); err != nil {
		t.Error(err)
	}
}
