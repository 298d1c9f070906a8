package asking

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// Whose devices are freed where a source shows other pods than those that have some: all sources but the API
// server show what the kubelet has.
func TestBury(t *testing.T) {
	t.Parallel()
	named := kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "set-0"}, Name: "c"}
	for name, tc := range map[string]struct {
		source intent.Source
		shown  []intent.Pod
		buried bool
	}{
		"the pod is there":                {intent.PodsAPI, []intent.Pod{{Pod: named.Pod, UID: "old"}}, false},
		"it is not":                       {intent.PodsAPI, nil, true},
		"another of its name is":          {intent.PodsAPI, []intent.Pod{{Pod: named.Pod, UID: "new"}}, true},
		"the API server does not show it": {intent.APIServer, nil, false},
		"the API server shows another":    {intent.APIServer, []intent.Pod{{Pod: named.Pod, UID: "new"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := ledger.New()
			l.Give(&ledger.Allocation{Owner: &named, UID: "old"}, gpus, "gpu0", 0)
			e := &Evidence{
				Ledger: l, Looked: &Looked{Pods: map[kubelet.Pod]bool{named.Pod: true}},
				Answer: &intent.Answer{Source: tc.source, Pods: tc.shown},
			}
			e.Bury()
			if buried := l.Holder(gpus, "gpu0") == nil; buried != tc.buried || e.Looked.Pods[named.Pod] == tc.buried {
				t.Errorf("buried: %v, the pod counts as seen: %v", buried, e.Looked.Pods[named.Pod])
			}
		})
	}
}

// A container takes over what the kubelet gave last where nothing tells whose that is, and not what the
// kubelet's checkpoint has shown with another pod: that one is gone, and its GPU is given again.
func TestHolderOf(t *testing.T) {
	t.Parallel()
	asks := &Asker{Recipient: ledger.Recipient{
		Pod: kubelet.Pod{Namespace: "team", Name: "new"}, UID: "new", Name: "c",
		Requests: map[string]int{gpus: 1, vfs: 1},
	}}
	for uid, follows := range map[string]bool{"": true, "new": true, "gone": false} {
		l, newest := ledger.New(), &ledger.Allocation{UID: uid}
		l.Allocate(newest, gpus, []string{"gpu0"}, nil)
		holder := (&Evidence{Ledger: l}).HolderOf(asks, newest)
		if (holder == newest) != follows {
			t.Errorf("after pod %q: %v", uid, holder)
		}
		l.Allocate(holder, gpus, []string{"gpu0"}, asks.To())
		again := (&Evidence{Ledger: l}).HolderOf(asks, nil)
		if again != holder || asks.Half(again) != SecondHalf {
			t.Errorf("after pod %q: its second half is not known: %v", uid, again)
		}
	}
}
