package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// The control plane runs on the host: there its programs run many times faster than in an emulated machine, and it stays
// while machines come and go. All of it is in a network namespace of its own, with the guest's address on its
// loopback, so that the API server reaches the kubelet where the node says it is.
type cluster struct {
	*cache
	services []*service
}

// Tokens of the users; nothing else can reach the API server.
const (
	adminToken     = "admin"
	nodeToken      = "node"
	schedulerToken = "scheduler"
	managerToken   = "manager"
)

const tokens = adminToken + `,admin,1,"system:masters"
` + nodeToken + `,system:node:` + nodeName + `,2,"system:nodes"
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

// setUpLoopback makes the network namespace what the cluster needs. What goes to the guest's address comes from another one,
// since the guest would not answer itself.
func setUpLoopback() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	const local = 255 // the routing table of local addresses, and their type is 2 (include/uapi/linux/rtnetlink.h)
	return errors.Join(netlink.LinkSetUp(loopback), netlink.RouteAdd(&netlink.Route{
		LinkIndex: loopback.Attrs().Index, Table: local, Type: 2, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: net.IPv4(10, 0, 2, 15), Mask: net.CIDRMask(32, 32)},
		Src: net.IPv4(127, 0, 0, 1),
	}))
}

// startCluster starts etcd, the API server, the scheduler and the controllers, and waits until the API server is ready.
func (c *cache) startCluster(ctx context.Context) (*cluster, error) {
	k := &cluster{cache: c}
	if err := k.writeFiles(); err != nil {
		return nil, err
	}
	run := c.path("run")
	etcd := tool(c.path("root"), "usr/bin/etcd", "--data-dir="+run+"/etcd", "--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	if err := k.start("etcd", etcd, "127.0.0.1:2379"); err != nil {
		return k, err
	}
	key := run + "/accounts.key"
	server := k.component("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--advertise-address=10.0.2.2",
		"--endpoint-reconciler-type=none", "--cert-dir="+run+"/certificates", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--token-auth-file="+run+"/tokens.csv", "--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	if err := k.start("kube-apiserver", server, "127.0.0.1:6443"); err != nil {
		return k, err
	}
	if err := k.retry(ctx, "get", "--raw", "/readyz"); err != nil {
		return k, err
	}
	scheduler := k.component("kube-scheduler", "--kubeconfig="+run+"/scheduler", "--leader-elect=false")
	// A node that reboots in emulation is away for longer than the controllers would wait.
	manager := k.component("kube-controller-manager", "--kubeconfig="+run+"/manager", "--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file="+key, "--node-monitor-grace-period=10m", "--controllers=*,-node-ipam-controller,-cloud-node-lifecycle-controller")
	return k, errors.Join(k.start("kube-scheduler", scheduler, ""), k.start("kube-controller-manager", manager, ""))
}

func (k *cluster) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	server := "https://127.0.0.1:6443"
	for name, content := range map[string]string{
		"tokens.csv":   tokens,
		"accounts.key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"admin":        kubeconfig(server, adminToken),
		"scheduler":    kubeconfig(server, schedulerToken),
		"manager":      kubeconfig(server, managerToken),
	} {
		if err := os.WriteFile(k.path("run", name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (k *cluster) component(name string, args ...string) *exec.Cmd {
	return exec.Command(k.path("kubernetes", name), args...)
}

// start starts a service and, where an address is given, waits until it listens there.
func (k *cluster) start(name string, cmd *exec.Cmd, address string) error {
	s, err := startService(cmd, k.path("run", name+".log"))
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
		case <-s.done:
			return s.ended()
		}
	}
	return nil
}

// retry asks the API server until it agrees.
func (k *cluster) retry(ctx context.Context, args ...string) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := k.kubectl(ctx, "", args...)
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

// kubectl does what a user would do, with the text for its standard input.
func (k *cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := k.component("kubectl", append([]string{"--kubeconfig=" + k.path("run/admin")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := command(ctx, cmd)
	return string(output), err
}

// stop ends everything, the API server before etcd.
func (k *cluster) stop() {
	for i := len(k.services) - 1; i >= 0; i-- {
		k.services[i].stop()
	}
}
