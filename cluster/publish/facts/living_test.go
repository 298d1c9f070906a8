package facts_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// TestLiving: a pod that holds devices has ended where the kubelet lists it as ended, or no more. A kubelet
// that lists no pods tells of none that it has ended.
func TestLiving(t *testing.T) {
	tree, err := topology.Read(empty())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := facts.NewReader(facts.Config{
		Sys: empty(), KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
		Pods: func(ctx context.Context) ([]corev1.Pod, error) { return kubelet.ListPods(ctx, dir) },
	})
	if err := published.WriteCheckpoint(dir, published.Give("runs", "main", published.GPUs, "x")); err != nil {
		t.Fatal(err)
	}
	if living := r.Read(t.Context(), tree, nil).Living; living != nil || living.Ended("runs") {
		t.Errorf("without a Pods API these pods live: %v", living)
	}
	var pods []corev1.Pod
	for uid, phase := range map[types.UID]corev1.PodPhase{
		"comes": "", "waits": corev1.PodPending, "runs": corev1.PodRunning, "done": corev1.PodSucceeded,
		"refused": corev1.PodFailed,
	} {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: corev1.PodStatus{Phase: phase},
		})
	}
	stop, err := podsapi.Serve(dir, func() []corev1.Pod { return pods })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	living := r.Read(t.Context(), tree, nil).Living
	if diff := cmp.Diff(facts.Living{"comes": true, "waits": true, "runs": true}, living); diff != "" {
		t.Errorf("living (-want +got):\n%s", diff)
	}
	for uid, want := range map[string]bool{"runs": false, "done": true, "refused": true, "gone": true} {
		if living.Ended(uid) != want {
			t.Errorf("%s has ended: %t", uid, !want)
		}
	}
}
