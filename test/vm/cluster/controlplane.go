// SPDX-License-Identifier: Apache-2.0

// Package cluster is a Kubernetes cluster of one node: its control plane, its node with Tandem, its pods.
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Cluster is the control plane. It runs on the host, many times faster than in an emulated machine, and
// survives machines. It has a network namespace of its own, with the guest's address on its loopback, so that
// the API server reaches the kubelet at the node's address.
type Cluster struct {
	cache    *build.Cache
	services []*host.Service
}

// component returns a command of the control plane, or kubectl.
func (k *Cluster) component(name string, args ...string) *exec.Cmd {
	return exec.Command(k.cache.Path("kubernetes", name), args...)
}

// Kubectl runs kubectl with a text for its standard input, and returns its output.
func (k *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := k.kubectl(args)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := host.Run(ctx, cmd)
	return string(output), err
}

// KubectlEach runs kubectl for each list of arguments, until one fails.
func (k *Cluster) KubectlEach(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if _, err := k.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

func (k *Cluster) kubectl(args []string) *exec.Cmd {
	return k.component("kubectl", append([]string{"--kubeconfig=" + k.cache.Path("run/admin")}, args...)...)
}

// await waits until an object meets conditions of "kubectl wait", one after the other.
func (k *Cluster) await(ctx context.Context, object string, conditions ...string) error {
	for _, condition := range conditions {
		if _, err := k.Kubectl(ctx, "", "wait", "--timeout=5m", object, "--for="+condition); err != nil {
			return err
		}
	}
	return nil
}

// retry repeats a kubectl command until it succeeds.
func (k *Cluster) retry(ctx context.Context, args ...string) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := k.Kubectl(ctx, "", args...)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Follow passes kubectl's output to read as it is printed, and ends kubectl when read returns.
func (k *Cluster) Follow(ctx context.Context, read func(io.Reader) error, args ...string) error {
	cmd := k.kubectl(args)
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err = read(output)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // the error is the kill
	return err
}

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

// NodeName is the node's.
const NodeName = "node"

// Tokens of the users; others cannot reach the API server.
const (
	adminToken     = "admin"
	nodeToken      = "node"
	schedulerToken = "scheduler"
	managerToken   = "manager"
)

const tokens = adminToken + `,admin,1,"system:masters"
` + nodeToken + `,system:node:` + NodeName + `,2,"system:nodes"
` + schedulerToken + `,system:kube-scheduler,3
` + managerToken + `,system:kube-controller-manager,4
`

func kubeconfig(server, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: vm, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: vm, user: {token: %s}}]
contexts: [{name: vm, context: {cluster: vm, user: vm}}]
current-context: vm
`, server, token)
}

// NodeKubeconfig returns the kubeconfig of the node's kubelet.
func NodeKubeconfig() string { return kubeconfig("https://10.0.2.2", nodeToken) }
