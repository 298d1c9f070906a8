// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The labels of the node of a [Served] server, which share one value, and the node's name.
const (
	Label     = "nvidia.com/device-plugin.config"
	RDMALabel = "tandem.dev/rdma.config"
	Node      = "node-1"
)

// Served is a server with one node, for programs that watch a label of the node, over HTTPS on 127.0.0.1.
type Served struct {
	*Server
	t   testing.TB
	web *httptest.Server
}

// Serve serves until the test ends. The node has the labels, unless value is "".
func Serve(t testing.TB, value string) *Served {
	t.Helper()
	s := &Served{Server: New(), t: t}
	s.Refuse = func(r *http.Request) error {
		if r.URL.Path != "/api/v1/nodes" || r.URL.Query().Get("fieldSelector") != "metadata.name="+Node {
			t.Errorf("asked for %s", r.URL)
		}
		return nil
	}
	s.Set(value)
	s.web = httptest.NewTLSServer(s)
	t.Cleanup(func() {
		s.web.CloseClientConnections()
		s.web.Close()
	})
	return s
}

// Set changes the value of the labels; "" removes them.
func (s *Served) Set(value string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: Node, Labels: map[string]string{"kubernetes.io/hostname": Node},
	}}
	if value != "" {
		node.Labels[Label], node.Labels[RDMALabel] = value, value
	}
	s.Put(node)
}

// URL returns the address.
func (s *Served) URL() string { return s.web.URL }

// CA returns the server's certificate, in PEM.
func (s *Served) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.web.Certificate().Raw})
}

// Kubeconfig writes a kubeconfig file for the server.
func (s *Served) Kubeconfig() string {
	s.t.Helper()
	content, err := json.Marshal(map[string]any{
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": s.URL(), "certificate-authority-data": s.CA(),
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
