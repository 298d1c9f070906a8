package asking

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// An init container can have the name of another pod's app container or sidecar, as those of meshes have.
// PodResources shows the other one; its own devices stay with its pod, where a source tells what it is.
func TestInitContainerOfASidecarsName(t *testing.T) {
	t.Parallel()
	pod, other := kubelet.Pod{Namespace: "team", Name: "pod"}, kubelet.Pod{Namespace: "team", Name: "other"}
	for name, tc := range map[string]struct {
		told *ledger.Recipient
		held bool
	}{
		"told that it is one":      {&ledger.Recipient{Role: intent.Init, Exact: true}, true},
		"told that it can be one":  {&ledger.Recipient{Role: intent.Init}, false},
		"told that it is a worker": {&ledger.Recipient{Role: intent.App, Exact: true}, false},
		"not told":                 {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := ledger.New()
			l.Allocate(&ledger.Allocation{Candidates: []kubelet.Pod{pod}}, vfs, []string{"vf0"}, tc.told)
			l.Newest().Container = "proxy"
			e := &Evidence{
				Ledger: l, Looked: &Looked{Pods: map[kubelet.Pod]bool{pod: true, other: true}}, Progress: Complete,
				View: &kubelet.View{
					Pods: []kubelet.Pod{pod, other},
					Containers: map[kubelet.Container]kubelet.Devices{
						{Pod: other, Name: "proxy"}: {vfs: {"vf1"}},
					},
				},
			}
			e.Observe(Question{Resource: gpus, Size: 1})
			if held := l.Holder(vfs, "vf0") != nil; held != tc.held {
				t.Errorf("held: %t, want %t", held, tc.held)
			}
		})
	}
}
