// SPDX-License-Identifier: Apache-2.0

package plainflag

import (
	"errors"
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
	} {
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		set.Int("count", 0, "")
		set.Uint("size", 0, "")
		set.Float64("share", 0, "")
		set.Bool("yes", false, "")
		said := Error(set.Parse([]string{tc.argument}))
		if said == nil || !strings.Contains(said.Error(), tc.want) || strings.Contains(said.Error(), "strconv") {
			t.Errorf("%s: %v, want %s", tc.argument, said, tc.want)
		}
	}
	if other := errors.New("something else"); !errors.Is(Error(other), other) {
		t.Error("another error is not handed on")
	}
}
