// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-k8s/tandem/cluster/publish/facts"
)

// Object is one of the API server's.
type Object struct {
	Collection string // its path: "/apis/tandem.dev/v1alpha1/nodetopologies"
	Name       string
	Body       any // the object itself, which becomes JSON
}

func (o Object) path() string { return o.Collection + "/" + o.Name }

// String is the path, for people.
func (o Object) String() string { return o.path() }

// Sink keeps one object.
type Sink struct {
	name   string
	client *Client
	render func(facts.Facts, Node) Object
	shared bool // others write such objects too: theirs are left alone
	log    *slog.Logger

	there  []byte      // the body that the API server has; nil if unknown
	warned bool        // of another's object
	forget atomic.Bool // there is not to be relied on
}

// NewSink makes a sink that --publish has a name for. What is shared is written only where nobody else has
// written it.
func NewSink(
	name string, client *Client, shared bool, render func(facts.Facts, Node) Object, log *slog.Logger,
) *Sink {
	return &Sink{name: name, client: client, render: render, shared: shared, log: log}
}

// Name is what --publish calls it.
func (s *Sink) Name() string { return s.name }

// Forget makes the next Write ask for the node and for the object.
func (s *Sink) Forget() {
	s.client.Forget()
	s.forget.Store(true)
}

// Write applies the object, unless the API server has it as it should be.
func (s *Sink) Write(ctx context.Context, f facts.Facts) (written bool, err error) {
	node, err := s.client.Node(ctx)
	if err != nil {
		return false, err
	}
	o := s.render(f, node)
	body, err := json.Marshal(o.Body)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", o, err)
	}
	if s.forget.Swap(false) {
		s.there = nil
	}
	if s.there == nil {
		if left, err := s.compare(ctx, o, body); left || err != nil {
			return false, err
		}
	}
	if bytes.Equal(s.there, body) {
		return false, nil
	}
	s.there = nil // until it is known to be there
	err = s.client.apply(ctx, o, !s.shared)
	if s.shared && apierrors.IsConflict(err) {
		s.leave(o)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.there = body
	return true, nil
}

// compare looks what the API server has. It reports whether that is another's, and to be left alone.
func (s *Sink) compare(ctx context.Context, o Object, body []byte) (left bool, err error) {
	has, err := s.client.get(ctx, o)
	if err != nil || has == nil {
		return false, err
	}
	theirs, ours, err := decode(has, body)
	if err != nil {
		return false, fmt.Errorf("compare %s: %w", o, err)
	}
	if s.shared && !labelled(theirs) {
		s.leave(o)
		return true, nil
	}
	if same(theirs, ours) {
		s.there = body
	}
	return false, nil
}

// leave says once that an object is another's.
func (s *Sink) leave(o Object) {
	if !s.warned {
		s.log.Warn("leave alone what somebody else publishes of this node; to have it published by Tandem, stop "+
			"who writes it and delete it", "publish", s.name, "object", o.String())
	}
	s.warned = true
}

func decode(theirs, ours []byte) (a, b map[string]any, err error) {
	for content, into := range map[*[]byte]*map[string]any{&theirs: &a, &ours: &b} {
		d := json.NewDecoder(bytes.NewReader(*content))
		d.UseNumber() // bytes of memory are more than a float holds
		if err := d.Decode(into); err != nil {
			return nil, nil, err
		}
	}
	return a, b, nil
}

func labelled(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels[ManagedBy] == Manager
}

// same reports whether all that we write is there, and nothing else but metadata. Of the metadata, labels of
// others do not matter.
func same(theirs, ours map[string]any) bool {
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
