// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/publish"
)

// server is an API server without a network that counts writes.
type server struct {
	mu      sync.Mutex
	away    bool // nobody can connect
	status  int  // of every answer; 0 for the right status
	objects map[string]map[string]any
	conflict,
	missing map[string]bool // paths that do not exist

	writes []time.Time
	reads  int
	tries  []time.Time // requests and failed connection attempts
}

func newServer(nodes ...string) *server {
	s := &server{objects: map[string]map[string]any{}, conflict: map[string]bool{}, missing: map[string]bool{}}
	for _, node := range nodes {
		s.objects["/api/v1/nodes/"+node] = map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node, "uid": "uid-of-" + node},
			"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": "v1.37.1"}},
		}
	}
	return s
}

// config returns the configuration of a publisher of a node to targets at the server, by default with a
// NodeTopology, in the namespace kube-system.
func (s *server) config(t testing.TB, node string, targets ...string) publish.Config {
	t.Helper()
	namespace := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(namespace, []byte("kube-system"), 0o600); err != nil {
		t.Fatal(err)
	}
	if targets == nil {
		targets = []string{"tandem"}
	}
	return publish.Config{
		Targets: targets, Server: &rest.Config{Host: "http://api.example", Transport: s, Dial: s.dial}, Node: node,
		NamespaceFile: namespace, Log: slog.New(slog.DiscardHandler),
	}
}

// sink returns the sink of a configuration with one object.
func sink(t testing.TB, config publish.Config) publish.Sink {
	t.Helper()
	sinks, _, err := publish.NewSinks(config)
	if err != nil || len(sinks) != 1 {
		t.Fatalf("%d sinks, %v", len(sinks), err)
	}
	return sinks[0]
}

var errAway = errors.New("connect: connection refused")

func (s *server) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errAway
	}
	client, server := net.Pipe()
	server.Close()
	return client, nil
}

// CloseIdleConnections does nothing: there are no connections.
func (s *server) CloseIdleConnections() {}

// RoundTrip answers as the API server would.
func (s *server) RoundTrip(q *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries = append(s.tries, time.Now())
	path := q.URL.Path
	switch {
	case s.away:
		return nil, errAway
	case s.status != 0:
		return answer(q, s.status, failure(s.status))
	case s.missing[path]:
		return answer(q, http.StatusNotFound, failure(http.StatusNotFound))
	case q.Method == http.MethodGet:
		s.reads++
		object, ok := s.objects[path]
		if !ok {
			return answer(q, http.StatusNotFound, failure(http.StatusNotFound))
		}
		return answer(q, http.StatusOK, object)
	case q.Method == http.MethodPatch && q.Header.Get("Content-Type") == "application/apply-patch+yaml":
		if s.conflict[path] && q.URL.Query().Get("force") != "true" {
			return answer(q, http.StatusConflict, failure(http.StatusConflict))
		}
		var object map[string]any
		body, err := io.ReadAll(q.Body)
		if err := errors.Join(err, json.Unmarshal(body, &object)); err != nil {
			return nil, err
		}
		s.objects[path] = object
		s.writes = append(s.writes, time.Now())
		return answer(q, http.StatusOK, object)
	default:
		return answer(q, http.StatusMethodNotAllowed, failure(http.StatusMethodNotAllowed))
	}
}

func failure(code int) map[string]any {
	reasons := map[int]string{404: "NotFound", 409: "Conflict", 403: "Forbidden"}
	return map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reasons[code],
		"message": fmt.Sprint("refused with ", code),
	}
}

func answer(q *http.Request, code int, body map[string]any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: q,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(string(content))), ContentLength: int64(len(content)),
	}, nil
}

// set changes how the server is.
func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// counts returns copies of the counters.
func (s *server) counts() (writes []time.Time, reads int, tries []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.writes...), s.reads, append([]time.Time(nil), s.tries...)
}

// at returns a field of an object, or nil.
func (s *server) at(path string, keys ...string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var value any = map[string]any(s.objects[path])
	for _, key := range keys {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}
