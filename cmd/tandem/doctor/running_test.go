// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
)

// TestPlugins: what the running plugins say of themselves is found; nothing where all is well or none runs.
func TestPlugins(t *testing.T) {
	for _, c := range []struct {
		plugins Plugins
		want    string // the IDs
	}{
		{Plugins{}, ""},
		{Plugins{Unoffered: "8 GPUs of NVIDIA's on PCI"}, "error gpus-not-offered;"},
		{Plugins{Unenforced: "no source answers"}, "warning alignment-not-enforced;"},
	} {
		var found strings.Builder
		for _, f := range runChecks(&Node{Plugins: c.plugins}, unofferedGPUs, findUnenforced) {
			found.WriteString(string(f.Severity) + " " + f.ID + ";")
			if len(f.Evidence) != 1 || len(f.Fix) == 0 {
				t.Errorf("%s: evidence %q, fix %q", f.ID, f.Evidence, f.Fix)
			}
		}
		if got := found.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.plugins, got, c.want)
		}
	}
	n := Node{RunDir: t.TempDir()}
	n.AskMode(t.Context())
	got := n.Plugins
	if got.Unenforced+got.Unoffered != "" || len(got.Resources) > 0 {
		t.Errorf("where none runs: %+v", got)
	}
}
