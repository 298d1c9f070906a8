// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// kind is a kind of requests of the driver.
type kind string

// Kinds of requests at which a process is killed.
const (
	getClaim    kind = "GET resourceclaims"
	getPod      kind = "GET pods"
	writeStatus kind = "PATCH status"
	writeSlice  kind = "PUT resourceslices"
	makeSlice   kind = "POST resourceslices"
	watchSlices kind = "GET resourceslices"
)

var kinds = []kind{getClaim, getPod, writeStatus, writeSlice, makeSlice, watchSlices}

// aim kills a process at its next request of a kind, before or after the effect of the request.
type aim struct {
	kind  kind
	after bool
}

// kindOf returns the kind of a request.
func kindOf(r *http.Request) kind {
	name := path.Base(r.URL.Path)
	if name != "resourceslices" && name != "status" && name != "version" {
		name = path.Base(path.Dir(r.URL.Path))
	}
	return kind(r.Method + " " + name)
}

// delay returns an addition to the latency of a kind of requests: requests that a process makes at the same
// time arrive in the order of their kinds.
func delay(of kind) time.Duration {
	for i, k := range kinds {
		if k == of {
			return time.Duration(i+1) * 101 * time.Microsecond
		}
	}
	return 0
}

// transport carries the requests of a process.
type transport struct{ process *process }

// RoundTrip makes a request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, of := t.process, kindOf(r)
	seeds.Pause(r.Context(), p.latency+delay(of))
	if p.killed.Load() {
		return nil, errKilled
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if p.isStruck(of, false) {
		return nil, errKilled
	}
	answer, err := p.node.server.serve(p, r)
	if p.isStruck(of, true) {
		return nil, errKilled
	}
	return answer, err
}

// isStruck kills the process if a request meets its aim, before or after the effect of the request. An aim
// ends with the kubelet's call: the server may answer the request much later, in a calm, which has no fault.
func (p *process) isStruck(of kind, after bool) bool {
	a := p.aim.Load()
	if a == nil || *a != (aim{of, after}) || !p.aim.CompareAndSwap(a, nil) {
		return false
	}
	p.kill()
	return true
}

// serve answers a request. Lists and watches wait for a server that is away; other requests fail.
func (s *server) serve(p *process, r *http.Request) (*http.Response, error) {
	var content []byte
	if r.Body != nil {
		var err error
		if content, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("read a request: %w", err)
		}
	}
	if r.Method == http.MethodGet && r.URL.Path == slicesPath {
		return s.read(p, r)
	}
	if err := s.awaitVoice(p, r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, err := s.answer(r, content)
	if err != nil {
		return failed(r, err)
	}
	return encoded(r, http.StatusOK, answer)
}

// answer returns the answer to a request. Must be called with the mutex.
func (s *server) answer(r *http.Request, content []byte) (any, error) {
	if s.away {
		return nil, apierrors.NewServiceUnavailable("the API server is away")
	}
	at := r.URL.Path
	switch {
	case at == "/version":
		return version.Info{GitVersion: "v1.37.0"}, nil
	case r.Method == http.MethodPost && at == slicesPath:
		return s.create(r, content)
	case r.Method == http.MethodPut:
		return s.update(at, content)
	case r.Method == http.MethodPatch:
		return s.apply(strings.TrimSuffix(at, "/status"), content)
	}
	o, ok := s.objects[at]
	if !ok {
		return nil, apierrors.NewNotFound(resource(at), path.Base(at))
	}
	if r.Method == http.MethodDelete {
		s.remove(at)
		return metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	return o, nil
}

// failed returns the answer for an error.
func failed(r *http.Request, err error) (*http.Response, error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return nil, err
	}
	answer := status.Status()
	answer.Kind, answer.APIVersion = "Status", "v1"
	return encoded(r, int(answer.Code), answer)
}

// encoded returns an answer.
func encoded(r *http.Request, code int, answer any) (*http.Response, error) {
	content, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return response(r, code, io.NopCloser(bytes.NewReader(content))), nil
}

func response(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Request: r, StatusCode: code, Status: http.StatusText(code), Body: body, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
	}
}
