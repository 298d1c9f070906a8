// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cmd/tandem-scheduler/managers"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// published is one version of a node's object, with cached results. The informer's store has it in place of
// the object.
type published struct {
	refused   atomic.Pointer[refusal]
	left      error                       // reason for ignoring a part of the object, nil for no ignored part
	last      atomic.Pointer[observation] // nil before the first request
	node      *verdict.Node               // nil if the object was refused on receipt
	kind      kind
	classes   *classes // of all objects
	resources map[string]bool
	metav1.ObjectMeta
}

// refusal is the reason why an object is ignored: it is invalid, or the plugin panicked on it.
type refusal struct{ error }

// refusal returns the reason why the object is ignored, or nil.
func (o *published) refusal() error {
	if r := o.refused.Load(); r != nil {
		return r
	}
	return nil
}

// describes reports whether a node has a resource of the object. Nobody deletes the object of a node that
// leaves the device plugins for DRA: pods there have their devices by claims, and no Topology Manager
// compares the devices.
func (o *published) describes(info fwk.NodeInfo) bool {
	room := info.GetAllocatable().GetScalarResources()
	for name := range o.resources {
		if room[v1.ResourceName(name)] > 0 {
			return true
		}
	}
	return len(o.resources) == 0
}

// try runs compute, a part of the plugin that uses the object, and reports whether it succeeded. A panic is
// recovered: a node's own object must not crash the scheduler. The object is then ignored until the node
// writes another version.
func (o *published) try(ctx context.Context, compute func()) (well bool) {
	defer func() {
		if r := recover(); r != nil {
			o.refuse(klog.FromContext(ctx), fmt.Errorf("panic: %v", r), "stack", string(debug.Stack()))
			well = false
		}
	}()
	compute()
	return true
}

func (o *published) refuse(logger klog.Logger, err error, more ...any) {
	o.refused.Store(&refusal{err})
	logger.Error(err, "The node's object is left out of account", append([]any{"node", o.Name}, more...)...)
}

// observation returns the node with the pods of a NodeInfo. The last observation is cached for the other
// pods of a job, and for nodes that received no pod.
func (o *published) observation(info fwk.NodeInfo) *observation {
	s := o.last.Load()
	if s == nil || s.generation != info.GetGeneration() {
		s = observe(o.node, info)
		s.class = o.classes.find(o.kind, s.after)
		o.last.Store(s)
	}
	return s
}

// reader parses objects.
type reader struct {
	shapes  verdict.Shapes
	classes classes
	logger  klog.Logger
}

func newReader(logger klog.Logger) *reader { return &reader{logger: logger} }

// read parses an object of the informer. Nodes with an unreadable object count as nodes without an object.
func (r *reader) read(received any) (any, error) {
	fields, isObject := received.(*unstructured.Unstructured)
	if !isObject {
		return received, nil // already parsed, or the last known state of a deleted object
	}
	object := &published{ObjectMeta: metav1.ObjectMeta{
		Name: fields.GetName(), UID: fields.GetUID(), ResourceVersion: fields.GetResourceVersion(),
	}, classes: &r.classes}
	object.try(klog.NewContext(context.Background(), r.logger), func() {
		if err := r.ready(object, fields); err != nil {
			object.refuse(r.logger, err)
		}
	})
	return object, nil
}

// ready converts an object to a node.
func (r *reader) ready(object *published, fields *unstructured.Unstructured) error {
	var topology v1alpha1.NodeTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields.Object, &topology); err != nil {
		return fmt.Errorf("decode NodeTopology: %w", err)
	}
	if err := topology.Spec.Validate(); err != nil {
		return err
	}
	given, unknown := managers.New(&topology.Spec)
	node, err := r.shapes.New(&topology, given)
	if err != nil {
		return err
	}
	if unknown == nil {
		unknown = node.State(func(types.UID) bool { return true }).Err()
	}
	object.left = errors.Join(node.Unknown(), unknown)
	if object.left != nil {
		r.logger.Error(object.left, "A part of the node's object is left out of account", "node", topology.Name)
	}
	object.kind, err = kindOf(&topology.Spec)
	if err != nil {
		return err
	}
	object.node, object.resources = node, map[string]bool{}
	for _, name := range node.Resources() {
		object.resources[name] = true
	}
	return nil
}

// byResource is the index of the objects by the names of their resources.
const byResource = "resource"

// Objects are the NodeTopology objects of the cluster. Filter and the scheduler's queueing hints share one
// informer, so that after a hint for a version of an object, Filter sees that version or a newer one. With
// two informers, Filter could still refuse a pod that a hint has just woken.
type Objects struct {
	store  cache.Indexer // of *published, by node
	needed bool          // by a plugin
}

// Watch takes the objects from the informer that the scheduler has created for its queueing hints. The
// scheduler starts that informer with its own ones, and schedules nothing before the informer has synced.
// Call Watch after the creation of all plugins and before the informer starts. Without a plugin, Watch does
// nothing.
func (o *Objects) Watch(ctx context.Context, factory dynamicinformer.DynamicSharedInformerFactory) error {
	if !o.needed {
		return nil
	}
	return o.watch(ctx, factory.ForResource(v1alpha1.GroupVersion.WithResource(v1alpha1.Plural)).Informer())
}

// Metric returns a metric with the number of refused objects, counted on each scrape.
func (o *Objects) Metric() metrics.GaugeFunc {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "scheduler_tandem_refused_objects", StabilityLevel: metrics.ALPHA,
		Help: "NodeTopology objects that are left out of account because they are not valid.",
	}, func() float64 { return float64(o.refused()) })
}

func (o *Objects) watch(ctx context.Context, informer cache.SharedIndexInformer) error {
	r := newReader(klog.FromContext(ctx).WithName(Name))
	if err := informer.SetTransform(r.read); err != nil {
		return fmt.Errorf("read NodeTopology objects: %w", err)
	}
	if err := informer.AddIndexers(cache.Indexers{byResource: resourcesOf}); err != nil {
		return fmt.Errorf("index NodeTopology objects: %w", err)
	}
	o.store = informer.GetIndexer()
	return nil
}

// refused returns the number of refused objects.
func (o *Objects) refused() int {
	count := 0
	if o.store == nil {
		return count
	}
	for _, object := range o.store.List() {
		if object.(*published).refusal() != nil {
			count++
		}
	}
	return count
}

// find returns the object of a node, or nil.
func (o *Objects) find(node string) *published {
	if found, exists, err := o.store.GetByKey(node); err == nil && exists {
		return found.(*published)
	}
	return nil
}

// valid returns the valid object of a node, or nil.
func (o *Objects) valid(node string) *published {
	if object := o.find(node); object != nil && object.refusal() == nil {
		return object
	}
	return nil
}

// resources returns the names of all published resources.
func (o *Objects) resources() []string { return o.store.ListIndexFuncValues(byResource) }

func resourcesOf(object any) ([]string, error) {
	return slices.Collect(maps.Keys(object.(*published).resources)), nil
}

// asks reports whether a container of a pod asks for a resource.
func asks(pod *v1.Pod, resource string) bool {
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if _, asked := containers[i].Resources.Limits[v1.ResourceName(resource)]; asked {
				return true
			}
		}
	}
	return false
}

// requestFields are the fields of a pod on which a verdict depends. Equal fields result in equal verdicts.
type requestFields struct {
	Namespace  string                             `json:"namespace"` // decides who may opt out of an alignment
	Alignment  string                             `json:"alignment,omitempty"`
	Resources  *v1.ResourceRequirements           `json:"resources,omitempty"`
	Claims     *v1.PodExtendedResourceClaimStatus `json:"claims,omitempty"`
	Containers []v1.Container                     `json:"containers"` // with their relevant fields
	Overhead   v1.ResourceList                    `json:"overhead,omitempty"`
	Init       int                                `json:"init"` // number of init containers
}

// request is a hash of a pod's requestFields.
type request string

// Clone implements fwk.StateData: a request is immutable.
func (r request) Clone() fwk.StateData { return r }

// hashRequest returns the request of a pod.
func hashRequest(pod *v1.Pod) (request, error) {
	w := requestFields{
		Namespace: pod.Namespace, Alignment: pod.Annotations[intent.AlignmentKey], Resources: pod.Spec.Resources,
		Claims: pod.Status.ExtendedResourceClaimStatus, Init: len(pod.Spec.InitContainers),
		Overhead: pod.Spec.Overhead,
	}
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			w.Containers = append(w.Containers, v1.Container{
				Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
			})
		}
	}
	text, err := json.Marshal(w)
	hash := sha256.Sum256(text)
	return request(hash[:]), err
}

// byCreation sorts pods stably by the second of their creation, like the kubelet for pods that it receives
// together (HandlePodAdditions in pkg/kubelet/kubelet.go).
func byCreation(pods []*v1.Pod) []*v1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
}
