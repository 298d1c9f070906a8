// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tandem-k8s/tandem/coordination/publish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "tandem": "tandem", "nrt, tandem,nrt": "nrt,tandem", "kubenexus,nfd": "kubenexus,nfd",
	} {
		var targets publish.Targets
		if err := targets.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := targets.MarshalText(); string(got) != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"all", "tandem,", "kubenexus", "kubenexus,tandem", "nfd-file"} {
		if err := new(publish.Targets).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}
