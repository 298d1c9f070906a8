package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// port is the kubelet's own (KubeletConfiguration, port).
const port = "10250"

// Endpoint says how to reach the kubelet's HTTPS server.
type Endpoint struct {
	// of this node, with or without a port
	Address string
	// the node's: the kubelet's own certificates bear it; "" to look for the address in the certificate
	Name string
	// file with the service account's token; it is read for every question, since tokens are renewed
	Token string
	// file with the certificates that may have signed the kubelet's, or with that itself where it is self-signed
	CA string
}

// HTTPS asks the kubelet's HTTPS server, which every version has.
type HTTPS struct {
	endpoint Endpoint
	url      string

	mu sync.Mutex
	// nil until the first question, and after one that failed: the CA file is then read again
	client *http.Client
}

// NewHTTPS makes a client. It reads files and connects when it is asked.
func NewHTTPS(endpoint Endpoint) *HTTPS {
	address := endpoint.Address
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, port)
	}
	return &HTTPS{endpoint: endpoint, url: "https://" + address}
}

// Close ends the connections.
func (h *HTTPS) Close() error {
	h.forget()
	return nil
}

// Pods lists all pods that the kubelet knows, those that have ended included: GET /pods. The account needs
// the right nodes/pods (get), before Kubernetes 1.33 nodes/proxy. It shows what the Pods API does, but the
// phase of a pod comes from the API server and lags behind (GetPods in pkg/kubelet/kubelet_getters.go).
func (h *HTTPS) Pods(ctx context.Context) ([]corev1.Pod, error) {
	body, err := h.get(ctx, "/pods", "nodes/pods")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("parse the pods of %s: %w", h.url, err)
	}
	return list.Items, nil
}

// Configz is the kubelet's configuration as it goes by it, JSON (pkg/kubelet/server/server.go): GET /configz.
// The account needs the right nodes/configz (get), before Kubernetes 1.33 nodes/proxy.
func (h *HTTPS) Configz(ctx context.Context) ([]byte, error) {
	return h.get(ctx, "/configz", "nodes/configz")
}

// get asks for a path, for which the account needs a right.
func (h *HTTPS) get(ctx context.Context, path, right string) ([]byte, error) {
	body, err := h.request(ctx, h.url+path, right)
	if err != nil {
		h.forget()
		return nil, fmt.Errorf("get %s: %w", h.url+path, err)
	}
	return body, nil
}

func (h *HTTPS) request(ctx context.Context, url, right string) ([]byte, error) {
	client, err := h.connect()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(h.endpoint.Token)
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	response, err := client.Do(request)
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		return nil, fmt.Errorf("%w: %s has not signed it; name a file that has with --kubelet-ca-file, of a "+
			"kubelet that signs its own the certificate itself", err, h.endpoint.CA)
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s; the account needs the right to get %s, or nodes/proxy before Kubernetes 1.33",
			response.Status, right)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMessage+1))
	if len(body) > maxMessage {
		return nil, fmt.Errorf("answer is larger than %d bytes", maxMessage)
	}
	return body, err
}

// connect makes the client that trusts the CA file alone. The token goes to nobody whose certificate is not
// signed by it.
func (h *HTTPS) connect() (*http.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client != nil {
		return h.client, nil
	}
	certificates, err := os.ReadFile(h.endpoint.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the kubelet's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("read the CA of the kubelet's certificate: no certificate in %s", h.endpoint.CA)
	}
	h.client = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: h.endpoint.Name, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return h.client, nil
}

func (h *HTTPS) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client != nil {
		h.client.CloseIdleConnections()
		h.client = nil
	}
}
