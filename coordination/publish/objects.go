// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Object is an object of the API server.
type Object struct {
	Collection string // its path: "/apis/tandem.dev/v1alpha1/nodetopologies"
	Name       string
	Body       any // the object, as a value for JSON
	// Unread is the reason for an unknown content, which is not written; nil if the content is known.
	Unread error
}

func (o Object) path() string { return o.Collection + "/" + o.Name }

// String returns the path, for people.
func (o Object) String() string { return o.path() }

// ObjectSink keeps one object at the API server up to date.
type ObjectSink struct {
	name   string
	client *Client
	render func(Facts, Node) Object
	shared bool // other software writes such objects too; theirs stay unchanged
	log    *slog.Logger

	there  []byte      // the API server's body; nil if unknown
	warned bool        // of another's object, since the object was last Tandem's
	forget atomic.Bool // there is not to be relied on
}

// NewObjectSink returns a sink with a name of --publish. A shared sink does not overwrite objects of other
// software.
func NewObjectSink(
	name string, client *Client, shared bool, render func(Facts, Node) Object, log *slog.Logger,
) *ObjectSink {
	return &ObjectSink{name: name, client: client, render: render, shared: shared, log: log}
}

// Name returns the name in --publish.
func (s *ObjectSink) Name() string { return s.name }

// Forget makes the next Write request the node and the object.
func (s *ObjectSink) Forget() {
	s.client.Forget()
	s.forget.Store(true)
}

// Write applies the object, unless the API server already has it. An object with unknown content stays
// unchanged.
func (s *ObjectSink) Write(ctx context.Context, f Facts) (written bool, err error) {
	node, err := s.client.Node(ctx)
	if err != nil {
		return false, err
	}
	o := s.render(f, node)
	if o.Unread != nil {
		return false, fmt.Errorf("write %s: %w", o, o.Unread)
	}
	body, err := json.Marshal(o.Body)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", o, err)
	}
	if s.forget.Swap(false) {
		s.there = nil
	}
	if s.there == nil {
		if left, err := s.compareObject(ctx, o, body); left || err != nil {
			return false, err
		}
	}
	if bytes.Equal(s.there, body) {
		return false, nil
	}
	s.there = nil // until the write succeeds
	err = s.client.applyObject(ctx, o, !s.shared)
	if s.shared && apierrors.IsConflict(err) {
		s.leaveObject(o)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.there, s.warned = body, false
	return true, nil
}

// compareObject reads the API server's object. It reports whether the object belongs to other software and
// stays unchanged.
func (s *ObjectSink) compareObject(ctx context.Context, o Object, body []byte) (left bool, err error) {
	has, err := s.client.getObject(ctx, o)
	if err != nil || has == nil {
		return false, err
	}
	theirs, ours, err := decodeBoth(has, body)
	if err != nil {
		return false, fmt.Errorf("compare %s: %w", o, err)
	}
	if s.shared && !isOurs(theirs) {
		s.leaveObject(o)
		return true, nil
	}
	if isSame(theirs, ours) {
		s.there, s.warned = body, false
	}
	return false, nil
}

// leaveObject logs once that an object belongs to other software, until the object is Tandem's again.
func (s *ObjectSink) leaveObject(o Object) {
	if !s.warned {
		s.log.Warn("not replacing an object of this node from another publisher; to let Tandem publish the "+
			"object, stop the other publisher and delete the object", "publish", s.name, "object", o.String())
	}
	s.warned = true
}

func decodeBoth(theirs, ours []byte) (a, b map[string]any, err error) {
	for content, into := range map[*[]byte]*map[string]any{&theirs: &a, &ours: &b} {
		d := json.NewDecoder(bytes.NewReader(*content))
		d.UseNumber() // bytes of memory are more than a float holds
		if err := d.Decode(into); err != nil {
			return nil, nil, err
		}
	}
	return a, b, nil
}

func isOurs(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels[ManagedBy] == FieldManager
}

// isSame reports whether the object has all of our fields, and no others except metadata. Labels of others do
// not matter.
func isSame(theirs, ours map[string]any) bool {
	for key := range theirs {
		if _, written := ours[key]; !written && key != "metadata" {
			return false
		}
	}
	for key, value := range ours {
		if key != "metadata" && !reflect.DeepEqual(theirs[key], value) {
			return false
		}
	}
	has, _ := theirs["metadata"].(map[string]any)
	want, _ := ours["metadata"].(map[string]any)
	hasLabels, _ := has["labels"].(map[string]any)
	wantLabels, _ := want["labels"].(map[string]any)
	for key, value := range wantLabels {
		if hasLabels[key] != value {
			return false
		}
	}
	return reflect.DeepEqual(has["ownerReferences"], want["ownerReferences"])
}
