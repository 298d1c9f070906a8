// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cmd/tandem-scheduler/managers"
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
	if object.left = errors.Join(node.Unknown(), unknown); object.left != nil {
		r.logger.Error(object.left, "A part of the node's object is left out of account", "node", topology.Name)
	}
	if object.kind, err = kindOf(&topology.Spec); err != nil {
		return err
	}
	object.node, object.resources = node, map[string]bool{}
	for _, name := range node.Resources() {
		object.resources[name] = true
	}
	return nil
}
