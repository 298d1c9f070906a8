// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// ServeHTTPS serves the current pods, each encoded in JSON, as GET /pods of a kubelet's HTTPS server, until
// the end of the test. The server takes any token.
func ServeHTTPS(t testing.TB, pods func() ([][]byte, error)) kubelet.Endpoint {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoded, err := pods()
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
		for i, pod := range encoded {
			if i > 0 {
				_, _ = io.WriteString(w, ",")
			}
			_, _ = w.Write(pod) // the client may leave
		}
		_, _ = io.WriteString(w, "]}")
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
