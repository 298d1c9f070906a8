// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Targets are the ways of publishing a node, the values of --publish.
type Targets []string

// The targets.
const (
	tandem    = "tandem"    // NodeTopology, Tandem's own object
	nrt       = "nrt"       // NodeResourceTopology
	nfd       = "nfd"       // labels, by a NodeFeature
	kubeNexus = "kubenexus" // the labels for KubeNexus, next to those of nfd
)

// All are the targets, in the order of the documents.
var All = Targets{tandem, nrt, nfd, kubeNexus}

// Objects returns the targets with an object of their own: all but kubenexus.
func (t Targets) Objects() Targets {
	return slices.DeleteFunc(slices.Clone(t), func(target string) bool { return target == kubeNexus })
}

// MarshalText joins the targets with commas.
func (t Targets) MarshalText() ([]byte, error) { return []byte(strings.Join(t, ",")), nil }

// UnmarshalText parses the format of MarshalText; "" means none.
func (t *Targets) UnmarshalText(text []byte) error {
	read := Targets{}
	for word := range strings.SplitSeq(string(text), ",") {
		target := strings.TrimSpace(word)
		switch {
		case target == "" && len(text) == 0:
		case !slices.Contains(All, target):
			return fmt.Errorf("unknown target %q: want some of tandem, nrt, nfd and kubenexus, with commas between",
				target)
		case !slices.Contains(read, target):
			read = append(read, target)
		}
	}
	if slices.Contains(read, kubeNexus) && !slices.Contains(read, nfd) {
		return fmt.Errorf("%s adds labels to those of %s: name both", kubeNexus, nfd)
	}
	*t = read
	return nil
}

// renderTopology returns Tandem's own object of a node.
func renderTopology(f Facts, node owner) object {
	t := &v1alpha1.NodeTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeTopology"},
		ObjectMeta: node.meta(), Spec: f.Spec,
	}
	t.Spec.Kubelet.Version = node.kubelet
	return object{
		path: "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Plural + "/" + node.name, body: t,
		unread: f.Unread,
	}
}

// renderZones returns the NodeResourceTopology of a node.
func renderZones(f Facts, node owner) object {
	t := BuildZones(f)
	t.ObjectMeta = node.meta()
	return object{path: zonesCollection + "/" + node.name, body: t, unread: f.Unread}
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

// newFeatureRender returns a function that makes a NodeFeature in the namespace of this process's pod, with
// the labels of targets.
func newFeatureRender(namespaceFile string, targets Targets) (func(Facts, owner) object, error) {
	content, err := os.ReadFile(namespaceFile)
	if err != nil {
		return nil, fmt.Errorf("find the pod's namespace: %w", err)
	}
	namespace := strings.TrimSpace(string(content))
	return func(f Facts, node owner) object {
		feature := &nodeFeature{
			TypeMeta:   metav1.TypeMeta{APIVersion: "nfd.k8s-sigs.io/v1alpha1", Kind: "NodeFeature"},
			ObjectMeta: node.meta(), Spec: featureSpec{Labels: buildLabels(f, targets)},
		}
		feature.Name, feature.Namespace = "tandem-"+node.name, namespace
		feature.Labels[nodeOfFeature] = node.name
		feature.Spec.Features.Flags = map[string]any{}
		feature.Spec.Features.Attributes = map[string]any{}
		feature.Spec.Features.Instances = map[string]any{}
		return object{
			path: "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/" + namespace + "/nodefeatures/" + feature.Name,
			body: feature,
		}
	}, nil
}

// object is an object of the API server.
type object struct {
	path string // "/apis/tandem.dev/v1alpha1/nodetopologies/NODE"
	body any    // the object, as a value for JSON
	// unread is the reason for an unknown content, which is not written; nil if the content is known.
	unread error
}

// String returns the path, for people.
func (o object) String() string { return o.path }

// objectSink keeps one object at the API server up to date.
type objectSink struct {
	name   string
	client *client
	render func(Facts, owner) object
	shared bool // other software writes such objects too; theirs stay unchanged
	log    *slog.Logger

	there  []byte      // the API server's body; nil if unknown
	warned bool        // of another's object, since the object was last Tandem's
	forget atomic.Bool // there is not to be relied on
}

// NewSinks returns the sinks of the targets of a configuration, and a function that opens a connection to
// their API server and closes it.
func NewSinks(c Config) (sinks []Sink, reach func(context.Context) error, err error) {
	if len(c.Targets) == 0 {
		return nil, nil, nil
	}
	client, err := newClient(c.Server, c.Node)
	if err != nil {
		return nil, nil, err
	}
	for _, target := range c.Targets.Objects() {
		sink := &objectSink{name: target, client: client, render: renderTopology, log: c.Log}
		switch target {
		case nrt:
			sink.render, sink.shared = renderZones, true
		case nfd:
			sink.render, err = newFeatureRender(c.NamespaceFile, c.Targets)
			if err != nil {
				return nil, nil, err
			}
		}
		sinks = append(sinks, sink)
	}
	return sinks, client.reach, nil
}

// Name returns the name in --publish.
func (s *objectSink) Name() string { return s.name }

// Forget makes the next Write request the node and the object.
func (s *objectSink) Forget() {
	s.client.forget()
	s.forget.Store(true)
}

// Write applies the object, unless the API server already has it. An object with unknown content stays
// unchanged.
func (s *objectSink) Write(ctx context.Context, f Facts) (written bool, err error) {
	node, err := s.client.getNode(ctx)
	if err != nil {
		return false, err
	}
	o := s.render(f, node)
	if o.unread != nil {
		return false, fmt.Errorf("write %s: %w", o, o.unread)
	}
	body, err := json.Marshal(o.body)
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
func (s *objectSink) compareObject(ctx context.Context, o object, body []byte) (left bool, err error) {
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
func (s *objectSink) leaveObject(o object) {
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
	return labels[managedBy] == fieldManager
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
