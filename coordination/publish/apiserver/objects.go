// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// NodeTopology returns Tandem's own object of a node.
func NodeTopology(f facts.Facts, node Node) Object {
	t := &v1alpha1.NodeTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeTopology"},
		ObjectMeta: node.Meta(), Spec: facts.BuildSpec(f),
	}
	t.Spec.Kubelet.Version = node.Kubelet
	return Object{
		Collection: "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Plural, Name: node.Name, Body: t,
		Unread: f.Unread,
	}
}

// Zones returns the NodeResourceTopology of a node.
func Zones(f facts.Facts, node Node) Object {
	t := facts.BuildZones(f)
	t.ObjectMeta = node.Meta()
	return Object{Collection: facts.ZonesCollection, Name: node.Name, Body: t, Unread: f.Unread}
}

// Feature is a NodeFeature of Node Feature Discovery (nfd.k8s-sigs.io/v1alpha1), from which NFD's master
// makes labels of the node.
type Feature struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec FeatureSpec `json:"spec"`
}

// FeatureSpec has labels, and no features for rules of NFD's.
type FeatureSpec struct {
	Features struct {
		Flags      map[string]any `json:"flags"`
		Attributes map[string]any `json:"attributes"`
		Instances  map[string]any `json:"instances"`
	} `json:"features"`
	Labels map[string]string `json:"labels"`
}

// nodeOfFeature is NFD's label with the node of a NodeFeature.
const nodeOfFeature = "nfd.node.kubernetes.io/node-name"

// NodeFeature returns a function that makes a NodeFeature in a namespace, with labels made of facts.
func NodeFeature(
	namespace string, labels func(facts.Facts) map[string]string,
) func(facts.Facts, Node) Object {
	return func(f facts.Facts, node Node) Object {
		feature := &Feature{
			TypeMeta:   metav1.TypeMeta{APIVersion: "nfd.k8s-sigs.io/v1alpha1", Kind: "NodeFeature"},
			ObjectMeta: node.Meta(), Spec: FeatureSpec{Labels: labels(f)},
		}
		feature.Name, feature.Namespace = "tandem-"+node.Name, namespace
		feature.Labels[nodeOfFeature] = node.Name
		feature.Spec.Features.Flags = map[string]any{}
		feature.Spec.Features.Attributes = map[string]any{}
		feature.Spec.Features.Instances = map[string]any{}
		return Object{
			Collection: "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/" + namespace + "/nodefeatures", Name: feature.Name,
			Body: feature,
		}
	}
}
