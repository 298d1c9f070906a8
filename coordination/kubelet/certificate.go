// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

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

// config returns the configuration of a connection with verify.
func (t *trust) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.endpoint.Name,
		InsecureSkipVerify: true, VerifyConnection: t.verify, // instead of the skipped verification
	}
}

// verify accepts a certificate with the node's name and the CA's signature, or the kubelet's own certificate
// on this node's disk with any name and dates: only root can write the file, and the server has proved the
// possession of the key.
func (t *trust) verify(connection tls.ConnectionState) error {
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
	return fmt.Errorf("%w; %s", err, t.advice())
}

// advice returns the steps to make the kubelet trusted.
func (t *trust) advice() string {
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
