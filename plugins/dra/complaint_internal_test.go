// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// A failure is logged again after it was over, and its end is logged.
func TestSecondOutageIsLogged(t *testing.T) {
	m := newMigrating(t)
	log := &bytes.Buffer{}
	m.viewer.holders.complaints = newComplaints(slog.New(slog.NewTextHandler(log, nil)))
	for range 2 {
		m.record(nil)
		m.viewer.holders.updateHolders(t.Context(), m.machine)
		file := kubelet.CheckpointPath(m.config.KubeletDir)
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			m.viewer.holders.updateHolders(t.Context(), m.machine)
		}
	}
	const problem = "device checkpoint of the kubelet not read; using the last known holders"
	if told := strings.Count(log.String(), `msg="`+problem); told != 2 {
		t.Errorf("two outages, told %d times:\n%s", told, log)
	}
	if told := strings.Count(log.String(), `msg="recovered from: `+problem); told != 1 {
		t.Errorf("one end, told %d times:\n%s", told, log)
	}
}

// An error of an activity that does not report its end counts as new after an hour without the error.
func TestComplaintWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		c := newComplaints(slog.New(slog.NewTextHandler(log, nil)))
		for _, pause := range []time.Duration{0, 30 * time.Minute, 45 * time.Minute, 61 * time.Minute} {
			<-time.After(pause)
			c.reportError("cannot publish", errors.New("no"))
		}
		if told := strings.Count(log.String(), "WARN"); told != 2 {
			t.Errorf("told %d times:\n%s", told, log)
		}
	})
}
