// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/podsapi"
)

// The unsound devices of containers are those with a reason whose pod a source knows.
func TestUnsound(t *testing.T) {
	dir := t.TempDir()
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "uid-1"},
		Spec:       wanting("tandem.dev/vf"),
	}
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
	defer sources.Close()
	device := func(id, pod string, healthy, degraded bool, reason string) *api.DeviceStatus {
		d := &api.DeviceStatus{Device: &api.Device{Id: id, Healthy: healthy, Degraded: degraded, Reason: reason}}
		if pod != "" {
			d.Allocated, d.Owner = true, &api.Owner{Namespace: "team", Pod: pod, Container: "worker"}
		}
		return d
	}
	e := &election{config: &Config{}, sources: sources}
	resources := []*api.Resource{{Name: "tandem.dev/vf", Devices: []*api.DeviceStatus{
		device("good", "train", true, false, ""), device("withheld", "train", false, false, ""),
		device("failed", "train", false, false, "link_downed increased"),
		device("degraded", "train", true, true, "symbol_error increased"),
		device("free", "", false, false, "link_downed increased"),
		device("of an unknown pod", "other", false, false, "link_downed increased"),
	}}}
	got, err := e.unsound(t.Context(), resources)
	if err != nil {
		t.Error(err)
	}
	of := Unsound{
		Container: kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train"}, Name: "worker"},
		UID:       "uid-1", Resource: "tandem.dev/vf",
	}
	failed, degraded := of, of
	failed.Device, failed.Health, failed.Reason = "failed", "failed", "link_downed increased"
	degraded.Device, degraded.Health, degraded.Reason = "degraded", "degraded", "symbol_error increased"
	if diff := cmp.Diff([]Unsound{failed, degraded}, got); diff != "" {
		t.Error(diff)
	}
	stop()
	if got, err := e.unsound(t.Context(), resources); err == nil {
		t.Errorf("without a source %v", got)
	}
}

// wanting is a pod's specification with one device of a resource.
func wanting(name corev1.ResourceName) corev1.PodSpec {
	one := corev1.ResourceList{name: resource.MustParse("1")}
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "worker", Resources: corev1.ResourceRequirements{Limits: one, Requests: one},
	}}}
}
