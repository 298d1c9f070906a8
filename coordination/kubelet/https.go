// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

// port is the kubelet's default port (KubeletConfiguration, port).
const port = "10250"

// HTTPS is a client of the kubelet's HTTPS server, which every version has.
type HTTPS struct {
	endpoint Endpoint
	url      string

	mu     sync.Mutex
	client *http.Client // nil before the first request and after a failure, to read the CA file again
}

// NewHTTPS returns a client. It reads files and connects on each request.
func NewHTTPS(endpoint Endpoint) *HTTPS {
	address := endpoint.Address
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, port)
	}
	return &HTTPS{endpoint: endpoint, url: "https://" + address}
}

// Close closes the connections.
func (h *HTTPS) Close() error {
	h.forget()
	return nil
}

// Pods calls each with every pod of the kubelet, including ended pods: GET /pods. A pod is valid during the
// call. The account needs the right nodes/pods (get), before Kubernetes 1.33 nodes/proxy. The result matches
// the Pods API, except that the phase of a pod comes from the API server and is older (GetPods in
// pkg/kubelet/kubelet_getters.go).
func (h *HTTPS) Pods(ctx context.Context, each func(EncodedPod) error) error {
	return h.get(ctx, "/pods", "nodes/pods", func(body io.ReadCloser) error {
		err := splitList(http.MaxBytesReader(nil, body, MaxPods), each)
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			return errTooLarge("the list", MaxPods)
		}
		return err
	})
}

// Configz returns the kubelet's active configuration as JSON (pkg/kubelet/server/server.go): GET /configz.
// The account needs the right nodes/configz (get), before Kubernetes 1.33 nodes/proxy.
func (h *HTTPS) Configz(ctx context.Context) (configuration []byte, err error) {
	err = h.get(ctx, "/configz", "nodes/configz", func(body io.ReadCloser) (err error) {
		configuration, err = io.ReadAll(http.MaxBytesReader(nil, body, maxPod))
		return err
	})
	return configuration, err
}

// get requests a path and reads the answer; right is the required permission of the account.
func (h *HTTPS) get(ctx context.Context, path, right string, read func(io.ReadCloser) error) error {
	if err := h.request(ctx, h.url+path, right, read); err != nil {
		h.forget()
		return fmt.Errorf("get %s: %w", h.url+path, err)
	}
	return nil
}

func (h *HTTPS) request(ctx context.Context, url, right string, read func(io.ReadCloser) error) error {
	client, err := h.connect()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(h.endpoint.Token)
	if err != nil {
		return fmt.Errorf("read the service account's token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s; the account needs the right to get %s, or nodes/proxy before Kubernetes 1.33",
			response.Status, right)
	}
	return read(response.Body)
}

// connect returns the client, which trusts only the kubelet of this node (trust).
func (h *HTTPS) connect() (*http.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client != nil {
		return h.client, nil
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(h.url, "https://"))
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's address: %w", err)
	}
	trust, err := readTrust(h.endpoint, host)
	if err != nil {
		return nil, err
	}
	h.client = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: trust.config(), ForceAttemptHTTP2: true},
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
