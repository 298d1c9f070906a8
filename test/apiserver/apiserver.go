// SPDX-License-Identifier: Apache-2.0

// Package apiserver is an API server with one node, for tests of programs that watch a label of the node.
package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The node's labels, which share one value, and the node's name.
const (
	Label     = "nvidia.com/device-plugin.config"
	RDMALabel = "tandem.dev/rdma.config"
	Node      = "node-1"
)

// Server serves the node, and watches of its label, over HTTPS on 127.0.0.1.
type Server struct {
	*httptest.Server
	t       testing.TB
	first   string
	changes chan string
}

// Start serves until the test ends. The node has the labels, unless value is "".
func Start(t testing.TB, value string) *Server {
	t.Helper()
	s := &Server{t: t, first: value, changes: make(chan string, 8)}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Set changes the value of the labels; "" removes them. One client receives the change.
func (s *Server) Set(value string) { s.changes <- value }

// CA returns the server's certificate, in PEM.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// Kubeconfig writes a kubeconfig file for the server.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	content, err := json.Marshal(map[string]any{
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": s.URL, "certificate-authority-data": s.CA(),
		}}},
		"contexts":        []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
		"current-context": "c",
	})
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// ServeHTTP lists and watches nodes, also in one request like the current reflectors of client-go.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.URL.Path != "/api/v1/nodes" || query.Get("fieldSelector") != "metadata.name="+Node {
		s.t.Errorf("asked for %s", r.URL)
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(message any) {
		_ = json.NewEncoder(w).Encode(message) // the client may have gone
		w.(http.Flusher).Flush()
	}
	if query.Get("watch") == "" {
		send(corev1.NodeList{
			TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{node(s.first, "1")},
		})
		return
	}
	if query.Get("sendInitialEvents") == "true" {
		send(event{"ADDED", node(s.first, "1")})
		end := node("", "1")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send(event{"BOOKMARK", end})
	}
	for version := 2; ; version++ {
		select {
		case value := <-s.changes:
			send(event{"MODIFIED", node(value, fmt.Sprint(version))})
		case <-r.Context().Done():
			return
		}
	}
}

// event is an event of a watch.
type event struct {
	Type   string      `json:"type"`
	Object corev1.Node `json:"object"`
}

func node(value, version string) corev1.Node {
	n := corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}}
	n.Name, n.ResourceVersion, n.Labels = Node, version, map[string]string{"kubernetes.io/hostname": Node}
	if value != "" {
		n.Labels[Label], n.Labels[RDMALabel] = value, value
	}
	return n
}
