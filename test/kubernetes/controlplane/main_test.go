// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/kubelet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

var (
	programs = flag.String("programs", "",
		"`folder` of the control plane's programs; without it nothing is tested")
	bin      = flag.String("bin", "../../../bin", "`folder` of Tandem's own programs")
	versions = flag.String("versions", "1.36.3,1.37.1", "`list` of the control planes to start")
)

func TestMain(m *testing.M) {
	flag.Parse()
	kubelet.Silence()
	goleak.VerifyTestMain(m)
}

// eachVersion runs a test on every version of the control plane.
func eachVersion(t *testing.T, test func(t *testing.T, o plane.Options)) {
	t.Helper()
	for version := range strings.SplitSeq(*versions, ",") {
		t.Run(version, func(t *testing.T) { test(t, options(t, version)) })
	}
}

// options leave a control plane as its version has it by default.
func options(t *testing.T, version string) plane.Options {
	t.Helper()
	if *programs == "" {
		t.Skip("no -programs: make controlplane builds them and runs the tests")
	}
	dir, err := filepath.Abs(*programs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, version)); err != nil {
		t.Fatal(err)
	}
	return plane.Options{Programs: dir, Version: version}
}
