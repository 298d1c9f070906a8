// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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
	h.forgetClient()
	return nil
}

// Pods calls each with every pod of the kubelet, including ended pods: GET /pods. A pod is valid during the
// call. The account needs the right nodes/pods (get), before Kubernetes 1.33 nodes/proxy. The result matches
// the Pods API, except that the phase of a pod comes from the API server and is older (GetPods in
// pkg/kubelet/kubelet_getters.go).
func (h *HTTPS) Pods(ctx context.Context, each func(EncodedPod) error) error {
	return h.getPath(ctx, "/pods", "nodes/pods", func(body io.ReadCloser) error {
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
	err = h.getPath(ctx, "/configz", "nodes/configz", func(body io.ReadCloser) (err error) {
		configuration, err = io.ReadAll(http.MaxBytesReader(nil, body, maxPod))
		return err
	})
	return configuration, err
}

// getPath requests a path and reads the answer; right is the required permission of the account.
func (h *HTTPS) getPath(ctx context.Context, path, right string, read func(io.ReadCloser) error) error {
	if err := h.requestURL(ctx, h.url+path, right, read); err != nil {
		h.forgetClient()
		return fmt.Errorf("get %s: %w", h.url+path, err)
	}
	return nil
}

func (h *HTTPS) requestURL(ctx context.Context, url, right string, read func(io.ReadCloser) error) error {
	client, err := h.connectClient()
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

// connectClient returns the client, which trusts only the kubelet of this node (trust).
func (h *HTTPS) connectClient() (*http.Client, error) {
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
		Transport:     &http.Transport{TLSClientConfig: trust.tlsConfig(), ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return h.client, nil
}

func (h *HTTPS) forgetClient() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client != nil {
		h.client.CloseIdleConnections()
		h.client = nil
	}
}

// Endpoint configures the access to the kubelet's HTTPS server.
type Endpoint struct {
	Address string // of the node, with or without a port
	Name    string // of the node, in the kubelet's certificates; "" to verify the address
	// Token is the file with the service account's token, read for every request, because tokens are renewed.
	Token string
	CA    string // file with the certificates of the kubelet's signers
	// Certificate is the file with the kubelet's self-signed certificate; may be missing, and "" is none.
	Certificate string
}

// trust decides whether a server is this node's kubelet, the only recipient of the token.
type trust struct {
	endpoint Endpoint
	name     string // required name in a signed certificate
	roots    *x509.CertPool
	own      [][]byte // certificates of Endpoint.Certificate, DER
	unread   error    // reason for the lack of own certificates; nil without Endpoint.Certificate
}

// readTrust reads the files of an endpoint. The kubelet's own certificate may be missing: with
// serverTLSBootstrap the kubelet stores none.
func readTrust(endpoint Endpoint, host string) (*trust, error) {
	t := &trust{endpoint: endpoint, name: endpoint.Name, roots: x509.NewCertPool()}
	if t.name == "" {
		t.name = host
	}
	certificates, err := os.ReadFile(endpoint.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the kubelet's certificate: %w", err)
	}
	if !t.roots.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("read the CA of the kubelet's certificate: no certificate in %s", endpoint.CA)
	}
	if endpoint.Certificate == "" {
		return t, nil
	}
	own, err := os.ReadFile(endpoint.Certificate)
	for block, rest := pem.Decode(own); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			t.own = append(t.own, block.Bytes)
		}
	}
	if len(t.own) == 0 && err == nil {
		err = errors.New("no certificate in it")
	}
	t.unread = err
	return t, nil
}

// tlsConfig returns the configuration of a connection with verify.
func (t *trust) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.endpoint.Name,
		InsecureSkipVerify: true, VerifyConnection: t.verifyKubelet, // instead of the skipped verification
	}
}

// verifyKubelet accepts a certificate with the node's name and the CA's signature, or the kubelet's own
// certificate on this node's disk with any name and dates: only root can write the file, and the server has
// proved the possession of the key.
func (t *trust) verifyKubelet(connection tls.ConnectionState) error {
	presented := connection.PeerCertificates
	if len(presented) == 0 {
		return errors.New("the kubelet presents no certificate")
	}
	options := x509.VerifyOptions{Roots: t.roots, DNSName: t.name, Intermediates: x509.NewCertPool()}
	for _, certificate := range presented[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err := presented[0].Verify(options)
	if err == nil {
		return nil
	}
	for _, own := range t.own {
		if bytes.Equal(own, presented[0].Raw) {
			return nil
		}
	}
	return fmt.Errorf("%w; %s", err, t.describeRemedy())
}

// describeRemedy returns the steps to make the kubelet trusted.
func (t *trust) describeRemedy() string {
	own := t.endpoint.Certificate
	switch {
	case own == "":
		return "set serverTLSBootstrap: true in the kubelet's configuration, or name the certificate that the " +
			"kubelet has signed itself with --kubelet-cert-file"
	case t.unread != nil:
		return fmt.Sprintf("set serverTLSBootstrap: true in the kubelet's configuration, or mount the certificate "+
			"that the kubelet has signed itself (Helm: kubeletCertificate=%s/pki/kubelet.crt): %v", DefaultDir,
			t.unread)
	default:
		return "it is not the certificate in " + own + " either; after the kubelet has made a new one, " +
			"start this pod again"
	}
}
