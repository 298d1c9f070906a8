// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/kubelet"
)

var bin = flag.String("bin", "../../../bin", "`folder` of Tandem's own programs")

func TestMain(m *testing.M) {
	flag.Parse()
	kubelet.Silence()
	goleak.VerifyTestMain(m)
}
