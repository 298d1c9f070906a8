// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// rig is the scheduler's framework with the plugin, for a few nodes.
type rig struct {
	t      testing.TB
	ctx    context.Context
	fwk    framework.Framework
	plugin *Plugin
}

// start starts the framework with published nodes.
func start(t testing.TB, published ...*v1alpha1.NodeTopology) *rig {
	t.Helper()
	metrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	r := &rig{t: t, ctx: ctx}
	var objects Objects
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New,
		Name: func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			made, err := objects.New(ctx, nil, handle)
			r.plugin = made.(*Plugin)
			return made, err
		},
	}
	only := func(name string) config.PluginSet {
		return config.PluginSet{Enabled: []config.Plugin{{Name: name, Weight: 1}}}
	}
	var err error
	r.fwk, err = frameworkruntime.NewFramework(ctx, registry, &config.KubeSchedulerProfile{
		SchedulerName: "tandem-scheduler",
		Plugins: &config.Plugins{
			QueueSort: only(queuesort.Name), Bind: only(defaultbinder.Name),
			PreFilter: only(Name), Filter: only(Name), PreScore: only(Name), Score: only(Name),
			Reserve: only(Name),
		},
	}, frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(internalcache.NewSnapshot(nil, nil)))
	if err != nil {
		t.Fatal(err)
	}
	informer := cache.NewSharedIndexInformer(listOf(t, published), &unstructured.Unstructured{}, 0,
		cache.Indexers{})
	if err := objects.watch(ctx, informer); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { informer.Run(ctx.Done()) })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	t.Cleanup(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
	return r
}

// still is a list of objects without changes.
type still struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes client-go list before it watches.
func (still) IsWatchListSemanticsUnSupported() bool { return true }

func listOf(t testing.TB, objects []*v1alpha1.NodeTopology) cache.ListerWatcher {
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("1")
	for _, o := range objects {
		list.Items = append(list.Items, *received(t, o))
	}
	return still{&cache.ListWatch{
		ListFunc:  func(metav1.ListOptions) (runtime.Object, error) { return list.DeepCopyObject(), nil },
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}}
}

// received returns an object in the informer's form.
func received(t testing.TB, o *v1alpha1.NodeTopology) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// newPublished reads an object.
func newPublished(t testing.TB, r *reader, o *v1alpha1.NodeTopology) *published {
	t.Helper()
	object, err := r.read(received(t, o))
	if err != nil {
		t.Fatal(err)
	}
	return object.(*published)
}

// on is a node with pods.
func on(name string, pods ...*v1.Pod) fwk.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(server.Node(name, 1))
	return info
}

// filter returns the plugin's verdict on a pod for each node.
func (r *rig) filter(pod *v1.Pod, nodes ...fwk.NodeInfo) (fwk.CycleState, []*fwk.Status) {
	r.t.Helper()
	state := framework.NewCycleState()
	_, status, _ := r.fwk.RunPreFilterPlugins(r.ctx, state, pod)
	if !status.IsSuccess() {
		r.t.Fatal(status)
	}
	var all []*fwk.Status
	for _, node := range nodes {
		all = append(all, r.fwk.RunFilterPlugins(r.ctx, state, pod, node))
	}
	return state, all
}

// created dates a pod, in seconds.
func created(pod *v1.Pod, second int64) *v1.Pod {
	pod.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
	return pod
}

func want(t *testing.T, got *fwk.Status, code fwk.Code, part string) {
	t.Helper()
	if got.Code() != code || !strings.Contains(got.Message(), part) {
		t.Errorf("got %v %q, want %v %q", got.Code(), got.Message(), code, part)
	}
}

func TestFilter(t *testing.T) {
	full := server.Topology("full", 1, true)
	server.Hold(full, "a", "0", "0")
	server.Hold(full, "b", "4", "4")
	r := start(t, full, server.Topology("free", 1, true))
	a, b := server.Pod("a", 1, 1), server.Pod("b", 1, 1)
	_, got := r.filter(server.Pod("new", 4, 4), on("full", a, b), on("full", b), on("free"), on("other"))
	want(t, got[0], fwk.Unschedulable,
		"no NUMA node has 4 amd.com/gpu and 4 tandem.dev/rdma_vf free; policy restricted refuses more nodes")
	for i, why := range []string{"a is gone", "the node is empty", "the node has no object"} {
		if !got[i+1].IsSuccess() {
			t.Errorf("%s: %v", why, got[i+1])
		}
	}
}

func TestNever(t *testing.T) {
	r := start(t, server.Topology("a", 8, true))
	_, got := r.filter(server.Pod("new", 8, 8), on("a"))
	want(t, got[0], fwk.UnschedulableAndUnresolvable, "excludeTopology is the way out")
}

func TestOthersAreLeftAlone(t *testing.T) {
	r := start(t, server.Topology("a", 1, true))
	state := framework.NewCycleState()
	pod := server.Pod("new", 0, 0)
	_, status, _ := r.fwk.RunPreFilterPlugins(r.ctx, state, pod)
	if !status.IsSuccess() || !state.GetSkipFilterPlugins().Has(Name) {
		t.Errorf("got %v, skipped are %v", status, state.GetSkipFilterPlugins())
	}
	if status := r.fwk.RunPreScorePlugins(r.ctx, state, pod, []fwk.NodeInfo{on("a")}); !status.IsSuccess() ||
		!state.GetSkipScorePlugins().Has(Name) {
		t.Errorf("got %v, skipped are %v", status, state.GetSkipScorePlugins())
	}
	if _, status := r.plugin.SignPod(r.ctx, pod); !status.IsSuccess() {
		t.Errorf("sign: %v", status)
	}
	if _, status := r.plugin.SignPod(r.ctx, server.Pod("b", 1, 0)); status.Code() != fwk.Unschedulable {
		t.Errorf("sign: %v", status)
	}
}

func TestRequiredAlignment(t *testing.T) {
	topology := server.Topology("a", 1, false)
	server.Hold(topology, "held", "0", "1")
	r := start(t, topology)
	pod := server.Pod("new", 7, 7)
	nodes := on("a", server.Pod("held", 1, 1))
	if _, got := r.filter(pod, nodes); !got[0].IsSuccess() {
		t.Error(got[0])
	}
	pod.Annotations = map[string]string{"tandem.dev/alignment": "required"}
	_, got := r.filter(pod, nodes)
	want(t, got[0], fwk.Unschedulable, "only 6 of 7 pairs can be on one switch")
}

func TestScore(t *testing.T) {
	broken := server.Topology("broken", 1, true)
	server.Hold(broken, "odd", "0", "1")
	fuller := server.Topology("fuller", 1, true)
	server.Hold(fuller, "x", "0-3", "0-3")
	server.Hold(fuller, "y", "4-5", "4-5")
	r := start(t, broken, fuller, server.Topology("empty", 1, true))
	pod := server.Pod("new", 2, 2)
	nodes := []fwk.NodeInfo{
		on("empty"), on("fuller", server.Pod("x", 4, 4), server.Pod("y", 2, 2)),
		on("broken", server.Pod("odd", 1, 1)), on("unknown"),
	}
	state, _ := r.filter(pod, nodes...)
	if status := r.fwk.RunPreScorePlugins(r.ctx, state, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores, status := r.fwk.RunScorePlugins(r.ctx, state, pod, nodes)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	got := map[string]int64{}
	for _, s := range scores {
		got[s.Name] = s.TotalScore
	}
	if got["fuller"] != 100 || got["empty"] >= got["fuller"] || got["empty"] == 0 || got["unknown"] != 0 {
		t.Errorf("got %v: want the node with room for nothing larger first", got)
	}
}
