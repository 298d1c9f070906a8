// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HTTPS stands in for the kubelet's HTTPS server: GET /pods with the token (getPods in
// pkg/kubelet/server/server.go). It keeps its address when the kubelet restarts.
type HTTPS struct {
	Address string
	Token   string
	CA      []byte // of its certificate
	server  *httptest.Server
}

// HTTPS returns the node's HTTPS server, or nil.
func (n *Node) HTTPS() *HTTPS { return n.https }

func serveHTTPS(before *HTTPS, pods *pods, d *disturbance) (*HTTPS, error) {
	h := &HTTPS{Address: "127.0.0.1:0", Token: "token"}
	if before != nil {
		h.Address = before.Address
	}
	listener, err := net.Listen("tcp", h.Address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTPS: %w", err)
	}
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+h.Token:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/pods":
			w.WriteHeader(http.StatusNotFound)
		default:
			pods.answer(w, r, d)
		}
	}))
	if err := h.server.Listener.Close(); err != nil { // the original listener
		return nil, fmt.Errorf("serve HTTPS: %w", err)
	}
	h.server.Listener = listener
	h.server.EnableHTTP2 = true
	h.server.StartTLS()
	h.Address = listener.Addr().String()
	h.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	return h, nil
}

// answer writes all pods of the kubelet, in its encoding.
func (p *pods) answer(w http.ResponseWriter, r *http.Request, d *disturbance) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, pod := range p.GetPods() {
		shown := *pod
		if status, known := p.GetPodStatus(pod.UID); known {
			shown.Status = status
		}
		list.Items = append(list.Items, shown)
	}
	body, err := json.Marshal(list)
	if err == nil {
		err = d.ask(r.Context(), GetPods)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client may be gone
}

func (h *HTTPS) stop() {
	if h == nil {
		return
	}
	h.server.CloseClientConnections()
	h.server.Close()
}
