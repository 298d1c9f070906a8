// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// The API server takes annotations of any bytes from a client that speaks protobuf. Names of devices in them
// keep nobody from an explanation, and reach nobody as they are.
func TestTenantTextInDecisions(t *testing.T) {
	for _, text := range []string{"GPU-\xff", "GPU-\x1b[2J", "GPU-\u202e"} {
		dir := filepath.Join(shortDir(t), "run")
		pod := corev1.Pod{Spec: wanting(gpus), ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "train", UID: "u", Annotations: map[string]string{intent.DevicesKey: text},
		}}
		_, member, _ := join(t, Config{
			RunDir: dir, Intent: intent.Config{
				Choice: intent.Choice{intent.PodsAPI}, Policy: intent.Policy{Choose: intent.AllNamespaces},
				Readers: map[intent.Source]intent.Reader{
					intent.PodsAPI: func(context.Context) ([]corev1.Pod, error) { return []corev1.Pod{pod}, nil },
				},
			},
		}, gpus, oneGPU, gpus)
		choose(t, member, []string{"gpu0"}, nil, 1)
		all, err := Explain(t.Context(), dir, "", "", "")
		if err != nil || len(all.GetDecisions()) != 1 {
			t.Fatalf("%q: %v, %v", text, all, err)
		}
		known := all.GetDecisions()[0].GetKnown()
		if !strings.Contains(known, "team/train/worker wants") || strings.Contains(known, text) {
			t.Errorf("%q: known is %q", text, known)
		}
	}
}
