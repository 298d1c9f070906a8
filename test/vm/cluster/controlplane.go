// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

// ServiceIP is the API server's address for pods: the first one for Services.
const ServiceIP = "10.96.0.1"

// Start starts etcd, API server, scheduler and controllers, and waits until the API server is ready.
func Start(ctx context.Context, c *build.Cache) (*Cluster, error) {
	k := &Cluster{cache: c}
	if err := k.writeFiles(); err != nil {
		return nil, err
	}
	run := c.Path("run")
	etcd := c.Tool("usr/bin/etcd", "--data-dir="+run+"/etcd", "--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	if err := k.start("etcd", etcd, "127.0.0.1:2379"); err != nil {
		return k, err
	}
	key := run + "/accounts.key"
	server := k.component("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=443",
		"--advertise-address=10.0.2.2",
		"--endpoint-reconciler-type=none", "--cert-dir="+run+"/certificates",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--token-auth-file="+run+"/tokens.csv", "--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	if err := k.start("kube-apiserver", server, "127.0.0.1:443"); err != nil {
		return k, err
	}
	if err := k.retry(ctx, "get", "--raw", "/readyz"); err != nil {
		return k, err
	}
	scheduler := k.component("kube-scheduler", "--kubeconfig="+run+"/scheduler", "--leader-elect=false")
	// A reboot in emulation takes longer than the controllers' default patience.
	manager := k.component("kube-controller-manager", "--kubeconfig="+run+"/manager", "--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+key, "--root-ca-file="+run+"/certificates/apiserver.crt",
		"--node-monitor-grace-period=10m",
		"--controllers=*,-node-ipam-controller,-cloud-node-lifecycle-controller")
	return k, errors.Join(k.start("kube-scheduler", scheduler, ""),
		k.start("kube-controller-manager", manager, ""))
}

func (k *Cluster) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	server := "https://127.0.0.1"
	for name, content := range map[string]string{
		"tokens.csv": tokens,
		"accounts.key": string(pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
		})),
		"admin":     kubeconfig(server, adminToken),
		"scheduler": kubeconfig(server, schedulerToken),
		"manager":   kubeconfig(server, managerToken),
	} {
		if err := os.WriteFile(k.cache.Path("run", name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// start starts a service and, given an address, waits until it listens there.
func (k *Cluster) start(name string, cmd *exec.Cmd, address string) error {
	s, err := host.StartService(cmd, k.cache.Path("run", name+".log"))
	if err != nil {
		return err
	}
	k.services = append(k.services, s)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for address != "" {
		if connection, err := net.Dial("tcp", address); err == nil {
			return connection.Close()
		}
		select {
		case <-ticker.C:
		case <-s.Done():
			return s.Ended()
		}
	}
	return nil
}

// Stop ends everything, the API server before etcd.
func (k *Cluster) Stop() {
	for i := len(k.services) - 1; i >= 0; i-- {
		k.services[i].Stop()
	}
}
