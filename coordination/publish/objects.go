// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Target is a way of publishing a node.
type Target string

// The targets.
const (
	Tandem    Target = "tandem"    // NodeTopology, Tandem's own object
	NRT       Target = "nrt"       // NodeResourceTopology
	NFD       Target = "nfd"       // labels, by a NodeFeature
	KubeNexus Target = "kubenexus" // the labels for KubeNexus, next to those of nfd
)

// All are the targets, in the order of the documents.
var All = []Target{Tandem, NRT, NFD, KubeNexus}

// Targets are the values of --publish.
type Targets []Target

// Has reports whether the targets include target.
func (t Targets) Has(target Target) bool { return slices.Contains(t, target) }

// MarshalText joins the targets with commas.
func (t Targets) MarshalText() ([]byte, error) {
	var words []string
	for _, target := range t {
		words = append(words, string(target))
	}
	return []byte(strings.Join(words, ",")), nil
}

// UnmarshalText parses the format of MarshalText; "" means none.
func (t *Targets) UnmarshalText(text []byte) error {
	read := Targets{}
	for word := range strings.SplitSeq(string(text), ",") {
		target := Target(strings.TrimSpace(word))
		switch {
		case target == "" && len(text) == 0:
		case !slices.Contains(All, target):
			return fmt.Errorf("unknown target %q: want some of tandem, nrt, nfd and kubenexus, with commas between",
				target)
		case !read.Has(target):
			read = append(read, target)
		}
	}
	if read.Has(KubeNexus) && !read.Has(NFD) {
		return fmt.Errorf("%s adds labels to those of %s: name both", KubeNexus, NFD)
	}
	*t = read
	return nil
}

// NodeTopology returns Tandem's own object of a node.
func NodeTopology(f Facts, node Node) Object {
	t := &v1alpha1.NodeTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeTopology"},
		ObjectMeta: node.Meta(), Spec: BuildSpec(f),
	}
	t.Spec.Kubelet.Version = node.Kubelet
	return Object{
		Collection: "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Plural, Name: node.Name, Body: t,
		Unread: f.Unread,
	}
}

// Zones returns the NodeResourceTopology of a node.
func Zones(f Facts, node Node) Object {
	t := BuildZones(f)
	t.ObjectMeta = node.Meta()
	return Object{Collection: ZonesCollection, Name: node.Name, Body: t, Unread: f.Unread}
}

// nodeFeature is a NodeFeature of Node Feature Discovery (nfd.k8s-sigs.io/v1alpha1), from which NFD's master
// makes labels of the node.
type nodeFeature struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec featureSpec `json:"spec"`
}

// featureSpec has labels, and no features for rules of NFD's.
type featureSpec struct {
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
	namespace string, labels func(Facts) map[string]string,
) func(Facts, Node) Object {
	return func(f Facts, node Node) Object {
		feature := &nodeFeature{
			TypeMeta:   metav1.TypeMeta{APIVersion: "nfd.k8s-sigs.io/v1alpha1", Kind: "NodeFeature"},
			ObjectMeta: node.Meta(), Spec: featureSpec{Labels: labels(f)},
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
