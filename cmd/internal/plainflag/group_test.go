// SPDX-License-Identifier: Apache-2.0

package plainflag

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestUsages(t *testing.T) {
	t.Parallel()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	set.SortFlags = false
	set.String("log-level", "info", "level of the log")
	set.Bool("help", false, "help for test")
	if diff := cmp.Diff(`Flags:
      --log-level string   level of the log (default "info")
      --help               help for test
`, Usages(set)); diff != "" {
		t.Errorf("without groups (-want +got):\n%s", diff)
	}
	Logging.Put(set, "log-level")
	set.Int("gpus", 0, "number of GPUs")
	set.Bool("old", false, "hidden")
	set.Lookup("old").Hidden = true
	Kubelet.Put(set, "old")
	set.Int("vfs", 0, "number of VFs")
	Request.Put(set, "vfs", "gpus")
	if diff := cmp.Diff(`Request:
      --gpus int   number of GPUs
      --vfs int    number of VFs

Logging:
      --log-level string   level of the log (default "info")

Other flags:
      --help   help for test
`, Usages(set)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	Monitor.PutRest(set)
	if got := headingOf(set.Lookup("help")); got != headings[Monitor] {
		t.Errorf("the rest is in %q", got)
	}
	if got := headingOf(set.Lookup("gpus")); got != headings[Request] {
		t.Errorf("a flag with a group is in %q", got)
	}
}
