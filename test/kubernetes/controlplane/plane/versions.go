// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	programs = flag.String("programs", "",
		"`folder` of the control plane's programs; without it nothing is tested")
	versions = flag.String("versions", "1.36.3,1.37.1", "`list` of the control planes to start")
)

// EachVersion runs a test on each version of the control plane, as the version has it by default.
func EachVersion(t *testing.T, test func(t *testing.T, o Options)) {
	t.Helper()
	if *programs == "" {
		t.Skip("no -programs: make controlplane and make schedulers build them and run the tests")
	}
	dir, err := filepath.Abs(*programs)
	if err != nil {
		t.Fatal(err)
	}
	for version := range strings.SplitSeq(*versions, ",") {
		t.Run(version, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(dir, version)); err != nil {
				t.Fatal(err)
			}
			test(t, Options{Programs: dir, Version: version})
		})
	}
}
