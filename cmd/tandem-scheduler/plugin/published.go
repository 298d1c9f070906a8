package plugin

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/cluster/verdict"
	"github.com/tandem-k8s/tandem/cmd/tandem-scheduler/managers"
)

// published is one version of a node's object, and what has been told of it. The informer's store has it in
// the object's place.
type published struct {
	metav1.ObjectMeta
	node      *verdict.Node // nil where the object cannot be understood
	kind      *kind
	resources map[string]bool
	managed   bool // whether CPUs and memory matter
	memory    memory
}

// reader makes objects ready to be asked.
type reader struct {
	shapes verdict.Shapes
	kinds  kinds
	logger klog.Logger
}

// read makes ready what the informer receives. Nodes whose object cannot be understood are as those without.
func (r *reader) read(received any) (any, error) {
	topology, isObject := received.(*v1alpha1.NodeTopology)
	if !isObject {
		return received, nil // read before, or the last that was known of an object that is gone
	}
	object := &published{ObjectMeta: metav1.ObjectMeta{
		Name: topology.Name, UID: topology.UID, ResourceVersion: topology.ResourceVersion,
	}}
	node, managed, err := r.ready(topology)
	if err != nil {
		r.logger.Error(err, "The node's object is left out of account", "node", topology.Name)
		return object, nil
	}
	if object.kind, err = r.kinds.of(topology); err != nil {
		return nil, err
	}
	if managed {
		if err := node.State(func(types.UID) bool { return true }).Err(); err != nil {
			r.logger.Error(err, "The node's CPUs and memory are left out of account", "node", topology.Name)
		}
	}
	object.node, object.managed, object.resources = node, managed, map[string]bool{}
	for _, name := range node.Resources() {
		object.resources[name] = true
	}
	return object, nil
}

// ready makes a node of an object, and tells whether CPUs and memory matter there.
func (r *reader) ready(topology *v1alpha1.NodeTopology) (node *verdict.Node, managed bool, err error) {
	m, err := managers.New(&topology.Spec)
	if err != nil {
		return nil, false, err
	}
	node, err = r.shapes.New(topology, m)
	return node, m != nil, err
}
