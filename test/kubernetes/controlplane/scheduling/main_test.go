// SPDX-License-Identifier: Apache-2.0

// Package scheduling compares schedulers on real control planes whose nodes' kubelets are the model.
package scheduling

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// eachVersion runs a test on every version of the control plane, whose schedulers the test starts.
func eachVersion(t *testing.T, test func(t *testing.T, o plane.Options)) {
	t.Helper()
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		o.Alone = true
		test(t, o)
	})
}
