// SPDX-License-Identifier: Apache-2.0

// Package scheduling compares schedulers on real control planes whose nodes' kubelets are the model.
package scheduling

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

var (
	programs = flag.String("programs", "",
		"`folder` of the control plane's programs; without it nothing is tested")
	versions = flag.String("versions", "1.36.3,1.37.1", "`list` of the control planes to start")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// eachVersion runs a test on every version of the control plane.
func eachVersion(t *testing.T, test func(t *testing.T, o plane.Options)) {
	t.Helper()
	if *programs == "" {
		t.Skip("no -programs: make schedulers builds them and runs the tests")
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
			test(t, plane.Options{Programs: dir, Version: version, Alone: true})
		})
	}
}
