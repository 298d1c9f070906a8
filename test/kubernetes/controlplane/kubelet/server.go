// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/tandem-k8s/tandem/test/podexec"
)

// Server is a node's server for API servers: it starts programs in pods, and serves the configuration.
type Server struct {
	*httptest.Server
	Address string // not a loopback address if possible, because API servers do not proxy to loopback
	Port    int32
}

// Serve starts a server. Close ends it.
func Serve(configuration map[string]any, program podexec.Program) (*Server, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address(), "0"))
	if err != nil {
		return nil, fmt.Errorf("serve as a kubelet: %w", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		podexec.Serve(w, r, r.PathValue("pod"), program)
	})
	routes.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"kubeletconfig": configuration}) // the client may have gone
	})
	s := &Server{Server: httptest.NewUnstartedServer(routes)}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Listener.Close()
	s.Listener = listener
	s.StartTLS()
	at := listener.Addr().(*net.TCPAddr)
	s.Address, s.Port = at.IP.String(), int32(at.Port)
	return s, nil
}

// address returns a reachable address of this host, else the loopback address.
func address() string {
	addresses, _ := net.InterfaceAddrs() // without any there is the loopback
	found := ""
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && !strings.Contains(ip.IP.String(), ":") {
			found = cmp.Or(found, ip.IP.String())
		}
	}
	return cmp.Or(found, "127.0.0.1")
}
