// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestPlugins: what the running plugins say of themselves is found; nothing where all is well or none runs.
func TestPlugins(t *testing.T) {
	m, err := machines.Load("oci-mi300x-derived", 1)
	if err != nil {
		t.Fatal(err)
	}
	gpus := []coordinator.Resource{{Kind: string(device.GPU), Connected: true}}
	for _, c := range []struct {
		asked  bool
		status coordinator.Status
		want   string // the IDs
	}{
		{false, coordinator.Status{}, ""},
		{true, coordinator.Status{Resources: gpus}, ""},
		{true, coordinator.Status{}, "error gpus-not-offered;"},
		{true, coordinator.Status{Resources: gpus, Alignment: &coordinator.Alignment{Why: "no source answers"}},
			"warning alignment-not-enforced;"},
	} {
		n := Node{Sys: m.FS(), asked: c.asked, status: c.status}
		var found strings.Builder
		for _, f := range runChecks(&n, ofPlugins, pluginChecks[:2]...) {
			found.WriteString(string(f.Severity) + " " + f.ID + ";")
			if len(f.Evidence) != 1 || len(f.Fix) == 0 {
				t.Errorf("%s: evidence %q, fix %q", f.ID, f.Evidence, f.Fix)
			}
		}
		if got := found.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.status, got, c.want)
		}
	}
	n := Node{RunDir: t.TempDir()}
	n.AskMode(t.Context())
	if n.Status() != nil || n.Mode != "" {
		t.Errorf("where none runs: %+v in mode %q", n.Status(), n.Mode)
	}
}
