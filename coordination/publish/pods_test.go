// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// tell calls each with every pod.
func tell(pods []corev1.Pod, err error, each func(*corev1.Pod)) error {
	for i := range pods {
		each(&pods[i])
	}
	return err
}

// TestGone: a pod of the checkpoint holds nothing if the kubelet lists it as ended, or no longer, and none of
// its containers runs. Without the kubelet's list no pod is gone.
func TestGone(t *testing.T) {
	tree := topology.Assemble(nil, nil, nil)
	dir := t.TempDir()
	var list []corev1.Pod
	var listErr error
	r := publish.NewReader(publish.Config{
		Sys: empty(), KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
		Pods: func(_ context.Context, each func(*corev1.Pod)) error { return tell(list, listErr, each) },
	})
	gpus := published.Announce(published.Resource{Name: published.GPUs, Kind: device.GPU})
	var given []published.Entry
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for uid, status := range map[types.UID]corev1.PodStatus{
		"comes": {}, "waits": {Phase: corev1.PodPending}, "runs": {Phase: corev1.PodRunning},
		"done": {Phase: corev1.PodSucceeded}, "refused": {Phase: corev1.PodFailed},
		"evicted": {Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{running}},
	} {
		list = append(list, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: status})
		given = append(given, published.Give(string(uid), "main", published.GPUs, string(uid)))
	}
	given = append(given, published.Give("deleted", "main", published.GPUs, "x"))
	if err := published.WriteCheckpoint(dir, given...); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		err  error
		want publish.Gone
	}{
		{kubelet.ErrNoPodsAPI, publish.Gone{}},
		{errors.New("Kubelet is initializing"), publish.Gone{}},
		{nil, publish.Gone{"done": true, "refused": true, "deleted": true}},
	} {
		listErr = test.err
		got := r.Read(t.Context(), admission.Announced{Tree: tree, Resources: gpus})
		if diff := cmp.Diff(test.want, got.Gone); diff != "" || len(got.Spec.Held) != len(given) {
			t.Errorf("%v: %d pods have devices, gone (-want +got):\n%s", test.err, len(got.Spec.Held), diff)
		}
	}
}

// TestExclusive: a pod with exclusive resources counts from its start until it is gone.
func TestExclusive(t *testing.T) {
	tree := topology.Assemble(nil, nil, nil)
	started := corev1.PodStatus{Phase: corev1.PodRunning}
	guaranteed := started
	guaranteed.QOSClass = corev1.PodQOSGuaranteed
	var pods []corev1.Pod
	for name, is := range map[string]struct {
		status corev1.PodStatus
		asks   corev1.ResourceName
		much   string
	}{
		"device":       {started, published.GPUs, "1"},
		"in admission": {corev1.PodStatus{Phase: corev1.PodPending}, published.GPUs, "1"},
		"ended":        {corev1.PodStatus{Phase: corev1.PodSucceeded}, published.GPUs, "1"},
		"cpu":          {guaranteed, corev1.ResourceCPU, "2"},
		"part of one":  {guaranteed, corev1.ResourceCPU, "1500m"},
		"shared":       {started, corev1.ResourceCPU, "2"},
		"memory":       {guaranteed, corev1.ResourceMemory, "1Gi"},
		"huge pages":   {guaranteed, "hugepages-2Mi", "4Mi"},
		"disk":         {guaranteed, corev1.ResourceEphemeralStorage, "1Gi"},
		"attached":     {started, "attachable.kubernetes.io/disks", "1"},
	} {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Status: is.status,
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "idle"}, {Name: "main"}}},
		})
		pods[len(pods)-1].Spec.Containers[1].Resources.Requests = corev1.ResourceList{
			is.asks: resource.MustParse(is.much),
		}
	}
	dir := t.TempDir()
	if err := published.WriteCheckpoint(dir); err != nil {
		t.Fatal(err)
	}
	read := func(pods []corev1.Pod, err error) []string {
		r := publish.NewReader(publish.Config{
			Sys: empty(), KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
			Pods: func(_ context.Context, each func(*corev1.Pod)) error { return tell(pods, err, each) },
		})
		var names []string
		exclusive := r.Read(t.Context(), admission.Announced{Tree: tree}).Exclusive
		if (exclusive == nil) != (err != nil) {
			t.Errorf("with error %v these pods are told: %v", err, exclusive)
		}
		for _, pod := range exclusive {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		return names
	}
	want := []string{"cpu", "device", "ended", "huge pages", "memory"}
	if diff := cmp.Diff(want, read(pods, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	read(nil, nil) // an empty list differs from no list
	read(pods, errors.New("not now"))
}
