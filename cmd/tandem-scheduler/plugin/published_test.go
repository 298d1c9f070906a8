// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/server"
)

// An object with invalid CPUs is used for its devices, with a line in the log.
func TestUnreadableCPUs(t *testing.T) {
	for held, complains := range map[string]bool{"1-2": false, "1-": true} {
		topology := server.Topology("a", 1, true)
		topology.Spec.Kubelet.CPUManagerPolicy, topology.Spec.Kubelet.ReservedSystemCPUs = "static", "0"
		topology.Spec.NUMANodes[0].CPUs, topology.Spec.NUMANodes[1].CPUs = "0-3", "4-7"
		server.Hold(topology, "pod", "0", "0")
		topology.Spec.Held[0].Containers[0].CPUs = v1alpha1.Set(held)
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		if read := newPublished(t, newReader(logger), topology); read.refusal() != nil {
			t.Fatal(read.refusal())
		}
		told := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if strings.Contains(told, "left out of account") != complains {
			t.Errorf("CPUs %q: %q", held, told)
		}
	}
}

// TestMigratedNode: a node in DRA mode keeps the NodeTopology object from its time with device plugins;
// nobody deletes or updates it (docs/dra.md, "Migrating a node"). Its kubelet no longer has the resources, so
// that an unchanged pod gets its devices by a claim (shouldDelegateResourceToDRA in noderesources/fit.go),
// and no Topology Manager compares devices.
func TestMigratedNode(t *testing.T) {
	r := start(t, server.Topology("a", 2, true)) // 8+8 is never admitted under restricted
	node := server.Node("a", 2)
	for _, name := range []v1.ResourceName{server.GPU, server.VF} {
		node.Status.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	if _, got := r.filter(server.Pod("new", 8, 8), info); !got[0].IsSuccess() {
		t.Errorf("a node without the device plugins' resources: %v", got[0])
	}
}

// A node's invalid object cannot end the scheduler: it is refused, and all others are used.
func TestRefusedObject(t *testing.T) {
	bad := server.Topology("bad", 1, true)
	bad.Spec.Resources[0].Devices = 1 << 60
	full := server.Topology("full", 1, true)
	server.Hold(full, "a", "0-7", "0-7")
	r := start(t, bad, full)
	recorder := events.NewFakeRecorder(10)
	r.plugin.events = recorder
	for range 3 {
		_, got := r.filter(server.Pod("new", 1, 1), on("bad"), on("full", server.Pod("a", 8, 8)))
		if !got[0].IsSuccess() {
			t.Errorf("the node is filtered: %v", got[0])
		}
		want(t, got[1], fwk.Unschedulable, "only 0 of 8")
	}
	if got := <-recorder.Events; !strings.Contains(got, "Warning NodeTopologyRefused") ||
		!strings.Contains(got, "devices of amd.com/gpu 1152921504606846976") {
		t.Errorf("event %q", got)
	}
	if len(recorder.Events) != 0 {
		t.Errorf("another event: %q", <-recorder.Events)
	}
	next := server.Topology("bad", 1, true)
	next.Spec.Resources[0].Devices, next.ResourceVersion = 1<<60, "next"
	again := start(t, next, full)
	r.plugin.objects = again.plugin.objects
	if r.filter(server.Pod("new", 1, 1), on("bad")); len(recorder.Events) != 0 {
		t.Errorf("an event of the next version: %q", <-recorder.Events)
	}
	if o := r.plugin.objects; o.refused() != 1 {
		t.Errorf("%d objects are refused", o.refused())
	}
}

// An unknown policy of the kubelet disables only the Topology Manager's prediction. The node gets an Event.
func TestUnknownPolicy(t *testing.T) {
	for name, spoil := range map[string]func(*v1alpha1.Kubelet){
		"policy": func(k *v1alpha1.Kubelet) { k.TopologyManagerPolicy = "spread" },
		"none":   func(k *v1alpha1.Kubelet) { k.TopologyManagerPolicy = "" },
		"scope":  func(k *v1alpha1.Kubelet) { k.TopologyManagerScope = "job" },
		"option": func(k *v1alpha1.Kubelet) {
			k.TopologyManagerPolicyOptions = map[string]string{"spread-numa-nodes": "true"}
		},
		"value": func(k *v1alpha1.Kubelet) {
			k.TopologyManagerPolicyOptions = map[string]string{"max-allowable-numa-nodes": "many"}
		},
	} {
		topology := server.Topology("a", 1, true)
		spoil(&topology.Spec.Kubelet)
		server.Hold(topology, "a", "0-6", "0-6")
		r := start(t, topology)
		recorder := events.NewFakeRecorder(10)
		r.plugin.events = recorder
		holder := server.Pod("a", 7, 7)
		_, fits := r.filter(server.Pod("new", 1, 1), on("a", holder))
		_, counts := r.filter(server.Pod("large", 2, 2), on("a", holder))
		if !fits[0].IsSuccess() {
			t.Errorf("%s: %v", name, fits[0])
		}
		want(t, counts[0], fwk.Unschedulable, "only 1 of 8")
		select {
		case got := <-recorder.Events:
			if !strings.Contains(got, "Warning NodeTopologyIncomplete") {
				t.Errorf("%s: event %q", name, got)
			}
		default:
			t.Errorf("%s: the node is not told", name)
		}
	}
}

// panicking are managers that panic for each pod.
type panicking struct{}

func (panicking) Restore([]v1alpha1.Held) (verdict.ManagerState, error) { return panicking{}, nil }
func (panicking) Empty() verdict.ManagerState                           { return panicking{} }
func (panicking) Concerns(*v1.Pod) bool                                 { panic("concerns") }
func (panicking) Clone() verdict.ManagerState                           { return panicking{} }
func (panicking) Hints(*v1.Pod, *v1.Container) []model.Hints            { panic("hints") }
func (panicking) Take(*v1.Pod, *v1.Container, model.Hint) error         { panic("take") }
func (panicking) Remove(types.UID)                                      { panic("remove") }

// A panic in any of the plugin's functions is recovered. The node then counts as a node without object.
func TestPanicStays(t *testing.T) {
	waiting := server.Pod("waiting", 1, 1)
	for name, call := range map[string]func(*rig, *published){
		"Filter": func(r *rig, _ *published) {
			if _, got := r.filter(waiting, on("a")); !got[0].IsSuccess() {
				t.Errorf("Filter: %v", got[0])
			}
		},
		"the hint of an object": func(r *rig, o *published) {
			if hint, err := r.plugin.afterObject(klog.Background(), waiting, nil, o); err != nil || hint != fwk.Queue {
				t.Errorf("hint %v, %v", hint, err)
			}
		},
		"the hint of a pod": func(r *rig, _ *published) {
			gone := server.Pod("gone", 0, 0)
			gone.Spec.NodeName = "a"
			if hint, err := r.plugin.afterPod(klog.Background(), waiting, gone, nil); err != nil || hint != fwk.Queue {
				t.Errorf("hint %v, %v", hint, err)
			}
		},
		"Score": func(r *rig, _ *published) {
			state, _ := r.filter(waiting)
			nodes := []fwk.NodeInfo{on("a")}
			if status := r.fwk.RunPreScorePlugins(r.ctx, state, waiting, nodes); !status.IsSuccess() {
				t.Fatal(status)
			}
			if _, status := r.fwk.RunScorePlugins(r.ctx, state, waiting, nodes); !status.IsSuccess() {
				t.Errorf("Score: %v", status)
			}
		},
	} {
		topology := server.Topology("a", 1, true)
		r := start(t, topology)
		object := r.plugin.objects.valid("a")
		var err error
		if object.node, err = verdict.New(topology, panicking{}); err != nil {
			t.Fatal(err)
		}
		call(r, object)
		if refusal := object.refusal(); refusal == nil || !strings.Contains(refusal.Error(), "panic") {
			t.Errorf("%s: refused is %v", name, refusal)
		}
		if r.plugin.objects.valid("a") != nil {
			t.Errorf("%s: the object is still used", name)
		}
	}
}

// The report is repeated as long as the node's object is refused, because Events are deleted after an hour.
func TestReportAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(100)
		p := &Plugin{events: recorder}
		object := &published{}
		for range 120 {
			p.report(server.Node("a", 1), object, "Reason", "effect", errors.New("why"))
			<-time.After(time.Minute)
		}
		if got := len(recorder.Events); got != 4 {
			t.Errorf("%d events in two hours, want 4", got)
		}
	})
}
