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

// trust decides whether a server is this node's kubelet. The token goes to nobody else.
type trust struct {
	endpoint Endpoint
	name     string // that a signed certificate has to bear
	roots    *x509.CertPool
	own      [][]byte // the certificates of Endpoint.Certificate, DER
	unread   error    // why there are none; nil where there is no such file
}

// readTrust reads the files of an endpoint. The kubelet's own certificate may be missing: a kubelet that has
// serverTLSBootstrap keeps none.
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

// config is that of a connection whose other end verify accepts.
func (t *trust) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.endpoint.Name,
		InsecureSkipVerify: true, VerifyConnection: t.verify, // which does what is skipped
	}
}

// verify accepts a certificate that the CA has signed and that bears the node's name, or the very one that
// the kubelet keeps on this node's disk, whatever name and dates that has: only root writes there, and the
// other end has proved that it has the key.
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

// advice says how a kubelet gets trusted.
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
