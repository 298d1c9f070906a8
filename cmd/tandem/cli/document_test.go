// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var d struct {
		Version V1 `json:"version"`
	}
	if text, err := json.Marshal(d); err != nil || string(text) != `{"version":1}` {
		t.Errorf("writes %s, %v", text, err)
	}
	for text, known := range map[string]bool{`{"version":1}`: true, `{}`: true, `{"version":2}`: false} {
		if err := json.Unmarshal([]byte(text), &d); (err == nil) != known {
			t.Errorf("reads %s: %v", text, err)
		}
	}
}

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
		if diff := cmp.Diff(want, newBuild("tandem", c.info).Table().String()); diff != "" {
			t.Error(diff)
		}
	}
}
