// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// selection returns the condition for the objects that a list or a watch is about.
func selection(at target, r *http.Request) (selects func(Object) bool, err error) {
	if r.URL.Query().Get("labelSelector") != "" {
		return nil, apierrors.NewBadRequest("this server has no selectors by label")
	}
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, wanted := range selector.Requirements() {
		if !fieldsOf(at.empty).Has(wanted.Field) {
			return nil, apierrors.NewBadRequest("field label not supported: " + wanted.Field)
		}
	}
	return func(o Object) bool {
		return collectionOf(o) == at.collection && (at.namespace == "" || o.GetNamespace() == at.namespace) &&
			selector.Matches(fieldsOf(o))
	}, nil
}

// selected returns the objects for which a condition holds, by path. Must be called with the mutex.
func (s *Server) selected(selects func(Object) bool) (found []Object) {
	for _, path := range slices.Sorted(maps.Keys(s.entries)) {
		if o := s.entries[path].Object; selects(o) {
			found = append(found, o)
		}
	}
	return found
}

// watch begins a watch. Must be called with the mutex.
func (s *Server) watch(at target, r *http.Request, delay func(context.Context)) (*stream, error) {
	selects, err := selection(at, r)
	if err != nil {
		return nil, err
	}
	w := &stream{
		server: s, selects: selects, began: time.Now(), ctx: r.Context(), delay: delay,
		woken: make(chan struct{}, 1),
	}
	s.streams[w] = true
	query := r.URL.Query()
	if query.Get("sendInitialEvents") != "true" {
		s.catchUp(w, query.Get("resourceVersion"))
		return w, nil
	}
	for _, o := range s.selected(selects) {
		w.send(watch.Added, o)
	}
	end := at.make()
	end.SetResourceVersion(fmt.Sprint(s.versions))
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	w.send(watch.Bookmark, end)
	return w, nil
}

// catchUp sends the changes since a version, or all objects without a version. Must be called with the mutex.
func (s *Server) catchUp(w *stream, version string) {
	since, err := strconv.Atoi(version)
	if err != nil || since == 0 {
		for _, o := range s.selected(w.selects) {
			w.send(watch.Added, o)
		}
		return
	}
	if since < s.oldest {
		w.expire()
		return
	}
	type event struct {
		change watch.EventType
		object Object
	}
	events := map[int]event{} // by version
	note := func(change watch.EventType, o Object) {
		if at, err := strconv.Atoi(o.GetResourceVersion()); err == nil && at > since && w.selects(o) {
			events[at] = event{change, o}
		}
	}
	for _, o := range s.deleted {
		note(watch.Deleted, o)
	}
	for _, e := range s.entries {
		if e.created > since {
			note(watch.Added, e.Object)
		} else {
			note(watch.Modified, e.Object)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(events)) {
		w.send(events[at].change, events[at].object)
	}
}

// stream is the body of a watch.
type stream struct {
	server  *Server
	selects func(Object) bool
	began   time.Time
	ctx     context.Context
	delay   func(context.Context) // of Transport

	mu     sync.Mutex
	events []byte // not received
	ended  bool
	woken  chan struct{}
}

// expire ends the watch: the server does not know its version any more.
func (w *stream) expire() {
	gone := apierrors.NewResourceExpired("too old resource version").Status()
	gone.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.send(watch.Error, &gone)
	w.end()
}

// send appends an event.
func (w *stream) send(change watch.EventType, of runtime.Object) {
	raw, err := json.Marshal(of)
	if err == nil {
		raw, err = json.Marshal(metav1.WatchEvent{Type: string(change), Object: runtime.RawExtension{Raw: raw}})
	}
	if err != nil {
		panic(fmt.Sprintf("encode an event: %v", err)) // objects can be encoded
	}
	w.mu.Lock()
	w.events = append(append(w.events, raw...), '\n')
	w.mu.Unlock()
	w.wake()
}

func (w *stream) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// end ends the stream after its events.
func (w *stream) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.wake()
}

// Read receives events, once the server is not behind.
func (w *stream) Read(p []byte) (int, error) {
	for {
		if w.ctx.Err() != nil {
			return 0, w.ctx.Err()
		}
		if n, err := w.take(p); n > 0 || err != nil {
			return n, err
		}
		select {
		case <-w.woken:
			if w.delay != nil {
				w.delay(w.ctx)
			}
		case <-w.ctx.Done():
		}
	}
}

// take returns received events, and io.EOF at the end of the stream; nothing while the server is behind.
func (w *stream) take(p []byte) (n int, err error) {
	w.server.mu.Lock()
	behind := w.server.behind
	w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !behind {
		n = copy(p, w.events)
		w.events = w.events[n:]
	}
	if w.ended && n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close ends the watch.
func (w *stream) Close() error {
	w.end()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.streams, w)
	return nil
}
