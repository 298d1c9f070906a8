// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/topology"
)

// claimedBy returns the holders as known last.
func claimedBy(holders ClaimHolders) *claimWatch {
	w := &claimWatch{}
	w.newest.Set(holders)
	return w
}

// TestNotesOfClaims: the status names the claims that withhold devices, each with its devices.
func TestNotesOfClaims(t *testing.T) {
	t.Parallel()
	devices := func(name string, ids ...string) *api.Resource {
		r := &api.Resource{Name: name}
		for _, id := range ids {
			r.Devices = append(r.Devices, &api.DeviceStatus{Device: &api.Device{Id: id}})
		}
		return r
	}
	resources := []*api.Resource{
		devices("gpu", "g0", "g1::0", "g1::1"), devices("vf", "v0", "v1"), devices("again", "v0"),
	}
	r := remarks{config: &Config{claims: claimedBy(ClaimHolders{
		"g0": "claim team/a", "v0": "claim team/a", "g1": "claim team/b",
	})}}
	const ending = ": unhealthy for the kubelet until the claim is deleted"
	want := []string{
		"claim team/a, prepared in DRA mode, withholds g0 v0" + ending,
		"claim team/b, prepared in DRA mode, withholds g1::0 g1::1" + ending,
	}
	if got := r.notes(t.Context(), resources); !slices.Equal(got, want) {
		t.Errorf("notes %q", got)
	}
	r.config.claims = claimedBy(nil)
	if got := r.notes(t.Context(), resources); len(got) > 0 {
		t.Errorf("without claims: %q", got)
	}
}

// A device of a claim is withheld under any ID: the driver has recorded its unit.
func TestRenamedDeviceOfClaimIsWithheld(t *testing.T) {
	t.Parallel()
	w := newWithholder(&Config{
		claims: claimedBy(ClaimHolders{"0000:81:00.0/7-0": "claim team/a"}), KubeletDir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler),
	}, nil)
	listed, _ := w.withhold("gpu", device.GPU, []device.Device{
		{ID: "MIG-2", Unit: topology.Unit{Name: "0000:81:00.0/7-0"}, Healthy: true},
		{ID: "MIG-1", Unit: topology.Unit{Name: "0000:81:00.0/8-0"}, Healthy: true},
	})
	if listed[0].Healthy || !listed[1].Healthy {
		t.Errorf("listed %+v", listed)
	}
}

// TestEveryDeviceIsWithheld: while holders are unknown every device has one, and the status says why.
func TestEveryDeviceIsWithheld(t *testing.T) {
	for holders, want := range map[string]struct {
		id, note string
		has      bool
	}{
		"a":       {"b", "", false},
		everyUnit: {"b::3", "all devices are withheld: held", true},
	} {
		w := ClaimHolders{holders: "held"}
		if got := w.Has(want.id, topology.UnitOfID(want.id)); got != want.has {
			t.Errorf("%v: %s is held: %v", w, want.id, got)
		}
		notes := remarks{config: &Config{claims: claimedBy(w)}}.notes(t.Context(), nil)
		if got := strings.Join(notes, "\n"); got != want.note {
			t.Errorf("%v: notes %q", w, got)
		}
	}
}

// sourcesWith opens the sources of a kubelet with one pod, whose Pods API runs until the test ends or stop is
// called.
func sourcesWith(t *testing.T, pod corev1.Pod) (sources *intent.Sources, stop func()) {
	t.Helper()
	dir := t.TempDir()
	stop, err := podsapi.Serve(dir, func() []corev1.Pod { return []corev1.Pod{pod} })
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(stop)
	t.Cleanup(stop)
	sources, err = intent.Open(intent.Config{
		Choice: intent.Default, KubeletDir: dir, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sources.Close(); err != nil {
			t.Error(err)
		}
	})
	return sources, stop
}

// Of a container that runs with far pairs although near ones are required it is said so, once a source
// answers; of one that may have them it is not.
func TestViolations(t *testing.T) {
	for text, want := range map[string]bool{"required": true, "requird": true, "preferred": false, "": false} {
		sources, _ := sourcesWith(t, corev1.Pod{Spec: wanting("amd.com/gpu"), ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "train", Annotations: map[string]string{intent.AlignmentKey: text},
		}})
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
	}
}

// The unsound devices of containers are those with a reason whose pod a source knows.
func TestUnsound(t *testing.T) {
	sources, stop := sourcesWith(t, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "uid-1"},
		Spec:       wanting("tandem.dev/vf"),
	})
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
