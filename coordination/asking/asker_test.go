package asking

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// wish is what a container asks for.
type wish struct{ gpus, vfs int }

// Kubelets before 1.34 show a pod that they have just rejected like one that waits.
func TestWhoAsksOfSeveral(t *testing.T) {
	t.Parallel()
	pod := func(name string, age time.Duration, w wish) intent.Pod {
		return intent.Pod{
			Pod: kubelet.Pod{Namespace: "team", Name: name}, UID: name, Created: time.Unix(1000, 0).Add(-age),
			Containers: []intent.Container{{Name: "c", Requests: map[string]int{gpus: w.gpus, vfs: w.vfs}}},
		}
	}
	old, young, other := pod("old", time.Hour, wish{1, 0}), pod("young", time.Minute, wish{1, 1}),
		pod("other", time.Second, wish{0, 1})
	twin := pod("twin", time.Second, wish{1, 1})
	started := pod("started", 0, wish{1, 1})
	started.Started = true
	lost := pod("lost", 0, wish{1, 1}) // the kubelet has no record of its devices any more
	lost.Started = true
	viewed := &kubelet.View{Pods: []kubelet.Pod{old.Pod, young.Pod}}
	for name, tc := range map[string]struct {
		pods    []intent.Pod
		source  intent.Source
		view    *kubelet.View
		arrived []kubelet.Pod
		want    string // "" for nobody
		exact   bool
	}{
		"nobody wants any": {pods: []intent.Pod{other}, source: intent.PodsAPI},
		"one does": {pods: []intent.Pod{other, young}, source: intent.PodsAPI,
			want: "young", exact: true},
		"one has started": {pods: []intent.Pod{started, old}, source: intent.PodsAPI,
			want: "old", exact: true},
		"one has started and lost its devices": {pods: []intent.Pod{lost, old},
			source: intent.PodsAPI, want: "old"},
		"the youngest": {pods: []intent.Pod{old, young}, source: intent.Kubelet,
			want: "young"},
		"it makes no difference": {pods: []intent.Pod{young, twin}, source: intent.Kubelet,
			want: "twin", exact: true},
		"one that has just come": {pods: []intent.Pod{old, young}, source: intent.Kubelet,
			view: viewed, arrived: []kubelet.Pod{old.Pod}, want: "old"},
		"the API server knows of more": {pods: []intent.Pod{old, young, twin},
			source: intent.APIServer, view: &kubelet.View{Pods: []kubelet.Pod{old.Pod}}, want: "old", exact: true},
		"the API server's oldest, with nothing else": {pods: []intent.Pod{old, young},
			source: intent.APIServer, want: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := ledger.New()
			l.Announce(gpus, device.GPU, device.Announcement{})
			l.Announce(vfs, device.VF, device.Announcement{})
			owner := started.Of(0)
			l.Give(&ledger.Allocation{Owner: &owner}, gpus, "its own", 0)
			e := &Evidence{
				Ledger: l, Looked: &Looked{Arrived: tc.arrived}, View: tc.view,
				Answer: &intent.Answer{Source: tc.source, Pods: tc.pods},
			}
			got := e.Receives(Question{Resource: gpus, Size: 1}, nil)
			switch {
			case (got == nil) != (tc.want == ""):
				t.Errorf("asks %v, want %q", got, tc.want)
			case got != nil && (got.Pod.Name != tc.want || got.Exact != tc.exact):
				t.Errorf("asks %s, want %q, exact %v", got.describe(), tc.want, tc.exact)
			}
		})
	}
}
