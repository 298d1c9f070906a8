// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/rest"
)

// Tokens of the users; only this host reaches the API server.
const (
	adminToken     = "admin"
	schedulerToken = "scheduler"
	managerToken   = "manager"
)

const tokens = adminToken + `,admin,1,"system:masters"
` + schedulerToken + `,system:kube-scheduler,2
` + managerToken + `,system:kube-controller-manager,3
`

// writeFiles writes the credentials of the API server, and the key of the service accounts' tokens.
func (p *Plane) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	for name, content := range map[string]string{
		"tokens.csv": tokens,
		"accounts.key": string(pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
		})),
		"scheduler": kubeconfig(p.address, schedulerToken),
		"manager":   kubeconfig(p.address, managerToken),
	} {
		if err := os.WriteFile(p.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func kubeconfig(address, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: plane, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]
users: [{name: plane, user: {token: %q}}]
contexts: [{name: plane, context: {cluster: plane, user: plane}}]
current-context: plane
`, address, token)
}

func (p *Plane) config(token string) *rest.Config {
	return &rest.Config{
		Host: "https://" + p.address, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// freePorts returns addresses without a listener.
func freePorts(count int) ([]string, error) {
	var addresses []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
