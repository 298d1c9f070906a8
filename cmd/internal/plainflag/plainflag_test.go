// SPDX-License-Identifier: Apache-2.0

package plainflag

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestError(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ argument, want string }{
		{"--count=many", `invalid argument "many" for "--count" flag: want a whole number`},
		{"--size=-1", `invalid argument "-1" for "--size" flag: want a whole number, 0 or more`},
		{"--size=99999999999999999999", `"--size" flag: the number is too large`},
		{"--share=half", `"--share" flag: want a number`},
		{"--yes=perhaps", `"--yes" flag: want true or false`},
		{"--none", "unknown flag: --none"},
		{"--cuont=1", "unknown flag: --cuont (did you mean --count?)"},
		{"--secret-ke=1", "unknown flag: --secret-ke"},
		{"--vendor=nvida", `invalid argument "nvida" for "--vendor" flag: want amd, nvidia or auto (did you mean nvidia?)`},
		{"--vendor=intel", `"--vendor" flag: want amd, nvidia or auto`},
		{"--level=inof", `unknown name (did you mean info?)`},
	} {
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		set.Int("count", 0, "")
		set.Uint("size", 0, "")
		set.Float64("share", 0, "")
		set.Bool("yes", false, "")
		set.Bool("secret-key", false, "")
		set.Lookup("secret-key").Hidden = true
		var vendor string
		Choice(set, &vendor, "vendor", "auto", "", "amd", "nvidia", "", "auto")
		set.TextVar(new(slog.Level), "level", slog.LevelInfo, "")
		Words(set, "level", "debug", "info")
		said := Error(set, set.Parse([]string{tc.argument}))
		if said == nil || !strings.HasSuffix(said.Error(), tc.want) || strings.Contains(said.Error(), "strconv") {
			t.Errorf("%s: %v, want %s", tc.argument, said, tc.want)
		}
	}
	none := pflag.NewFlagSet("test", pflag.ContinueOnError)
	if other := errors.New("something else"); !errors.Is(Error(none, other), other) {
		t.Error("another error is not handed on")
	}
}
