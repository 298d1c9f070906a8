// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// ServeHTTPS serves the current pods as GET /pods of a kubelet's HTTPS server, until the end of the test. The
// server takes any token.
func ServeHTTPS(t testing.TB, pods func() []corev1.Pod) kubelet.Endpoint {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.PodList{Items: pods()}) // the client may leave
	})
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients leave
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	e := kubelet.Endpoint{
		Address: server.Listener.Addr().String(), Name: "example.com",
		Token: filepath.Join(dir, "token"), CA: filepath.Join(dir, "ca.crt"),
	}
	for file, content := range map[string][]byte{
		e.Token: []byte("token"),
		e.CA:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e
}
