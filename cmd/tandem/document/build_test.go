// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-24T12:00:00+02:00"},
	}}
	for _, c := range []struct {
		info         *debug.BuildInfo
		commit, date string
	}{
		{info, "0123456789abcdef", "2026-11-24T10:00:00Z"}, {nil, "unknown", "unknown"},
	} {
		want := fmt.Sprintf("tandem %s\ncommit    %s\ndate      %s\ngo        %s\nplatform  %s/%s\n",
			version.Of(c.info), c.commit, c.date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		if diff := cmp.Diff(want, string(NewBuild("tandem", c.info).Table())); diff != "" {
			t.Error(diff)
		}
	}
}
