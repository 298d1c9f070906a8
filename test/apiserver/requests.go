// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Transport carries requests to a server in the same process.
type Transport struct {
	Server *Server
	// Delay is called when a request has waited for the server, and a watch for an event, unless nil: clients
	// that have waited for the same go on in an order that their delays make.
	Delay func(context.Context)
}

// RoundTrip makes a request.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	return Transport{Server: s}.RoundTrip(r)
}

// RoundTrip makes a request.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var content []byte
	if r.Body != nil {
		var err error
		if content, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("read a request: %w", err)
		}
	}
	at := targetOf(r.URL.Path)
	isRead := r.Method == http.MethodGet && at.isCollection()
	if err := t.await(r.Context(), isRead); err != nil {
		return nil, err
	}
	s := t.Server
	if err := s.refuse(r, isRead); err != nil {
		return failed(r, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isRead && r.URL.Query().Get("watch") != "" {
		w, err := s.watch(at, r, t.Delay)
		if err != nil {
			return failed(r, err)
		}
		return response(r, http.StatusOK, w), nil
	}
	answer, err := s.answer(at, r, content)
	if err != nil {
		return failed(r, err)
	}
	return encoded(r, http.StatusOK, answer)
}

// ServeHTTP makes a request that has come over a network.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	defer answer.Body.Close()
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	piece := make([]byte, 32<<10)
	for {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		n, ended := answer.Body.Read(piece)
		if _, err := w.Write(piece[:n]); err != nil || ended != nil {
			return
		}
	}
}

// refuse returns the reason for refusing a request.
func (s *Server) refuse(r *http.Request, isRead bool) error {
	s.mu.Lock()
	isAway := s.away && !isRead
	s.mu.Unlock()
	if isAway {
		return apierrors.NewServiceUnavailable("the API server is away")
	}
	if s.Refuse != nil {
		return s.Refuse(r)
	}
	return nil
}

// answer returns the answer to a request. Must be called with the mutex.
func (s *Server) answer(at target, r *http.Request, content []byte) (any, error) {
	switch {
	case r.URL.Path == "/version":
		return version.Info{GitVersion: s.features.Version}, nil
	case at.collection == nil:
		unknown := schema.GroupResource{Resource: path.Base(path.Dir(r.URL.Path))}
		return nil, apierrors.NewNotFound(unknown, path.Base(r.URL.Path))
	case at.isCollection() && r.Method == http.MethodGet:
		return s.list(at, r)
	case at.isCollection() && r.Method == http.MethodPost:
		return s.create(at, r, content)
	}
	e := s.entries[at.path(at.namespace, at.object)]
	switch {
	case r.Method != http.MethodGet && r.URL.Query().Get("dryRun") != "":
		return nil, errDryRun
	case e == nil:
		return nil, apierrors.NewNotFound(at.resource(), at.object)
	case r.Method == http.MethodGet:
		return e.Object, nil
	case r.Method == http.MethodPut:
		return s.update(at, e.Object, content)
	case r.Method == http.MethodPatch:
		return s.apply(at, e, r, content)
	case r.Method == http.MethodDelete:
		return s.delete(at, e.Object, content)
	default:
		return nil, apierrors.NewMethodNotSupported(at.resource(), r.Method)
	}
}

// list returns the selected objects of a collection. Must be called with the mutex.
func (s *Server) list(at target, r *http.Request) (any, error) {
	selects, err := selection(at, r)
	if err != nil {
		return nil, err
	}
	answer := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []Object `json:"items"`
	}{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.versions)}, Items: s.selected(selects)}
	answer.SetGroupVersionKind(at.version.WithKind(at.kind + "List"))
	return answer, nil
}

// failed returns the answer for an error; one that is none of the API breaks the connection.
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
