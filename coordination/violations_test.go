// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/podsapi"
)

// Of a container that runs with far pairs although near ones are required it is said so, once a source
// answers; of one that may have them it is not.
func TestViolations(t *testing.T) {
	for text, want := range map[string]bool{"required": true, "requird": true, "preferred": false, "": false} {
		dir := t.TempDir()
		pod := corev1.Pod{Spec: wanting("amd.com/gpu"), ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "train", Annotations: map[string]string{intent.AlignmentKey: text},
		}}
		stop, err := podsapi.Serve(dir, func() []corev1.Pod { return []corev1.Pod{pod} })
		if err != nil {
			t.Fatal(err)
		}
		sources, err := intent.Open(intent.Config{
			Choice: intent.Default, KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		device := func(at string) []*api.DeviceStatus {
			return []*api.DeviceStatus{{
				Switch: at, Allocated: true, Owner: &api.Owner{Namespace: "team", Pod: "train", Container: "worker"},
			}}
		}
		n := remarks{&Config{}, sources}
		got := n.violations(t.Context(), []*api.Resource{
			{Name: "amd.com/gpu", Kind: "gpu", Devices: device("0000:08:00.0")},
			{Name: "tandem.dev/rdma_vf", Kind: "vf", Devices: device("0000:09:00.0")},
		})
		if (len(got) == 1) != want || want && !strings.Contains(got[0], "team/train/worker runs with pairs on") {
			t.Errorf("%q: %q", text, got)
		}
		if err := sources.Close(); err != nil {
			t.Error(err)
		}
		stop()
	}
}
