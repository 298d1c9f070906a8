// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

type object = runtime.Object

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}()

// encodingFor returns the preferred encoding of a request: protobuf, or JSON by default.
func encodingFor(r *http.Request) runtime.SerializerInfo {
	wanted := runtime.ContentTypeJSON
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		wanted = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), wanted)
	return info
}

func encoder(to runtime.Encoder) runtime.Encoder {
	return codecs.EncoderForVersion(to, v1.SchemeGroupVersion)
}

func decode(body []byte, into object) error {
	_, _, err := codecs.UniversalDeserializer().Decode(body, nil, into)
	return err
}

func failure(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason)}
}

// respond answers a request other than a watch.
func respond(w http.ResponseWriter, r *http.Request, answer object) {
	encoding := encodingFor(r)
	w.Header().Set("Content-Type", encoding.MediaType)
	if status, failed := answer.(*metav1.Status); failed {
		w.WriteHeader(int(status.Code))
	}
	_ = encoder(encoding.Serializer).Encode(answer, w) // the client may be gone
}

// watcher is a client's watch.
type watcher struct {
	r       *http.Request
	objects runtime.Encoder
	events  streaming.Encoder
	flush   func()
}

// watch streams the changes after a resource version; on request, all present pods come first.
func (a *APIServer) watch(w http.ResponseWriter, r *http.Request) {
	encoding := encodingFor(r)
	w.Header().Set("Content-Type", encoding.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	s := watcher{
		r: r, objects: encoder(encoding.Serializer), flush: w.(http.Flusher).Flush,
		events: streaming.NewEncoder(encoding.StreamSerializer.Framer.NewFrameWriter(w),
			encoder(encoding.StreamSerializer.Serializer)),
	}
	s.flush()
	a.changed(func() { a.streams++ })
	defer a.changed(func() { a.streams-- })
	version, err := strconv.Atoi(r.FormValue("resourceVersion"))
	if r.FormValue("sendInitialEvents") == "true" {
		version, err = s.sendAll(a.list())
	}
	for err == nil {
		version, err = a.sendNext(s, version)
	}
}

// sendAll sends all present pods, then a bookmark. It returns the resource version.
func (s watcher) sendAll(list *v1.PodList) (version int, err error) {
	for i := range list.Items {
		if err := s.send(watch.Added, &list.Items[i]); err != nil {
			return 0, err
		}
	}
	end := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: list.ResourceVersion,
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	if err := s.send(watch.Bookmark, end); err != nil {
		return 0, err
	}
	return strconv.Atoi(list.ResourceVersion)
}

func (s watcher) send(kind watch.EventType, what object) error {
	raw, err := runtime.Encode(s.objects, what)
	if err != nil {
		return err
	}
	if err := s.events.Encode(&metav1.WatchEvent{
		Type: string(kind), Object: runtime.RawExtension{Raw: raw},
	}); err != nil {
		return err
	}
	s.flush()
	return nil
}

// sendNext sends the change after a resource version when its delay has passed, and returns its version.
func (a *APIServer) sendNext(s watcher, version int) (sent int, err error) {
	for noted := false; ; {
		a.mu.Lock()
		wake, expired, late, due := a.wake, version+1 < a.oldest, a.delay > 0, time.Duration(0)
		var next *change
		if version+1 < len(a.history) {
			next = &a.history[version+1]
			due = time.Until(next.at.Add(a.delay))
		}
		a.mu.Unlock()
		if next != nil && late && !noted {
			noted = true
			a.changed(func() { a.seen.Late++ })
		}
		switch {
		case expired:
			return 0, errors.Join(s.send(watch.Error, failure(http.StatusGone, metav1.StatusReasonExpired)),
				errors.New("expired"))
		case next != nil && due <= 0:
			return version + 1, s.send(next.kind, next.pod)
		}
		if err := s.wait(wake, next != nil, due); err != nil {
			return 0, err
		}
	}
}

// wait waits for a change, at most for most if bounded.
func (s watcher) wait(wake <-chan struct{}, bounded bool, most time.Duration) error {
	var timeout <-chan time.Time
	if bounded {
		timer := time.NewTimer(most)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-wake:
		return nil
	case <-timeout:
		return nil
	case <-s.r.Context().Done():
		return s.r.Context().Err()
	}
}
