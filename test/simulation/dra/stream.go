// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// stream is the body of a watch of slices.
type stream struct {
	server  *server
	selects func(*resourceapi.ResourceSlice) bool
	began   time.Time
	ctx     context.Context
	latency time.Duration

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
		panic(fmt.Sprintf("encode an event: %v", err)) // slices can be encoded
	}
	w.mu.Lock()
	w.events = append(append(w.events, raw...), '\n')
	w.mu.Unlock()
	w.wake()
}

// sendInitial sends the slices of the moment, and a mark of their end, as for a list.
func (w *stream) sendInitial(present []*resourceapi.ResourceSlice, version string) {
	for _, slice := range present {
		w.send(watch.Added, slice)
	}
	mark := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	mark.TypeMeta = sliceType
	w.send(watch.Bookmark, mark)
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
			seeds.Pause(w.ctx, w.latency)
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
