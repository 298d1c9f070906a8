// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/machines"
)

// TestPlugins: what the running plugins say of themselves is found; nothing where all is well or none runs.
func TestPlugins(t *testing.T) {
	sys := machines.Sys(t, "oci-mi300x-derived", 1)
	gpus := []*api.Resource{{Kind: string(device.GPU), Connected: true}}
	for _, c := range []struct {
		asked  bool
		answer *api.StatusResponse
		want   string // the IDs
	}{
		{false, nil, ""},
		{true, &api.StatusResponse{Resources: gpus}, ""},
		{true, nil, "error gpus-not-offered;"},
		{true, &api.StatusResponse{Resources: gpus, Alignment: &api.Alignment{Why: "no source answers"}},
			"warning alignment-not-enforced;"},
	} {
		n := Node{Sys: sys, asked: c.asked, status: coordinator.NewStatus(c.answer)}
		var found strings.Builder
		for _, f := range runChecks(&n, ofPlugins, pluginChecks[:2]...) {
			found.WriteString(string(f.Severity) + " " + f.ID + ";")
			if len(f.Evidence) != 1 || len(f.Fix) == 0 {
				t.Errorf("%s: evidence %q, fix %q", f.ID, f.Evidence, f.Fix)
			}
		}
		if got := found.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.answer, got, c.want)
		}
	}
	n := Node{RunDir: t.TempDir()}
	n.AskMode(t.Context())
	if n.Status() != nil || n.Mode != "" {
		t.Errorf("where none runs: %+v in mode %q", n.Status(), n.Mode)
	}
}
