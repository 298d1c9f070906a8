// SPDX-License-Identifier: Apache-2.0

// Package plane is a Kubernetes control plane for a test: etcd, API server, scheduler and controllers as
// released, on ports of the loopback device, in a folder of their own.
package plane

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Options configure a control plane.
type Options struct {
	Programs string          // folder with etcd, and with a folder for each version of Kubernetes
	Version  string          // "1.37.1"
	As       string          // earlier version to emulate, "1.35"; "" for none
	Gates    map[string]bool // feature gates of all programs, other than defaults
	APIs     []string        // on or off, "scheduling.k8s.io/v1beta1=true"
	Alone    bool            // the API server, without scheduler and controllers
}

// Plane is a running control plane. Its methods are for the goroutine of the test.
type Plane struct {
	t       testing.TB
	options Options
	dir     string
	etcd    string // its client's URL
	address string // of the API server

	running map[string]*program // by name
	starts  int
}

// startTime bounds the wait for a program to serve: on a busy host the API server takes half a minute.
const startTime = 3 * time.Minute

// Start starts a control plane that ends with the test. After a failure the logs are kept next to the
// programs.
func Start(t testing.TB, options Options) *Plane {
	t.Helper()
	dir, err := makeDir()
	if err != nil {
		t.Fatal(err)
	}
	p := &Plane{t: t, options: options, dir: dir, running: map[string]*program{}}
	t.Cleanup(p.End)
	ports, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	p.etcd, p.address = "http://"+ports[0], ports[2]
	if err := p.writeFiles(); err != nil {
		t.Fatal(err)
	}
	p.start("etcd", filepath.Join(options.Programs, "etcd"), "--data-dir="+p.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+p.etcd, "--advertise-client-urls="+p.etcd, "--listen-peer-urls=http://"+ports[1],
		"--quota-backend-bytes=4000000000")
	p.StartServer()
	if !options.Alone {
		p.StartScheduler()
		p.StartControllers()
	}
	return p
}

// makeDir returns a temporary folder, in memory if possible, because etcd waits for the disk. Its path is
// short, for the sockets.
func makeDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "plane-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("/tmp", "plane-")
}

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

// End stops all programs, in reverse order of their start, before the test ends.
func (p *Plane) End() {
	for _, running := range slices.SortedFunc(maps.Values(p.running), func(a, b *program) int {
		return b.number - a.number
	}) {
		running.Stop()
	}
	if p.t.Failed() && len(p.running) > 0 {
		p.Keep(p.path("*.log"))
	}
	clear(p.running)
	os.RemoveAll(p.dir)
}

// Keep copies logs of a failed test to those of the control plane.
func (p *Plane) Keep(pattern string) {
	to := filepath.Join(p.options.Programs, "logs", strings.ReplaceAll(p.t.Name(), "/", "_"))
	logs, err := filepath.Glob(pattern)
	err = errors.Join(err, os.MkdirAll(to, 0o755))
	for _, log := range logs {
		content, failed := os.ReadFile(log)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(to, filepath.Base(log)), content, 0o644))
	}
	p.t.Logf("logs are in %s", to)
	if err != nil {
		p.t.Log(err)
	}
}

// Version returns the version of Kubernetes, "1.37.1".
func (p *Plane) Version() string { return p.options.Version }

// Admin returns the configuration of the cluster's administrator.
func (p *Plane) Admin() *rest.Config { return p.config(adminToken) }

// Node returns the kubelet of a node.
func (p *Plane) Node(name string) *rest.Config {
	config := p.Admin()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:node:" + name, Groups: []string{"system:nodes"},
	}
	return config
}

// Bearer returns the configuration with a token.
func (p *Plane) Bearer(token string) *rest.Config { return p.config(token) }

// Kubeconfig writes a kubeconfig file with a token.
func (p *Plane) Kubeconfig(token string) string {
	p.t.Helper()
	p.starts++
	file := p.path(fmt.Sprint("kubeconfig-", p.starts))
	if err := os.WriteFile(file, []byte(kubeconfig(p.address, token)), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// Client returns a client without a rate limit.
func (p *Plane) Client(config *rest.Config) kubernetes.Interface {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// features returns the flags for the features of all programs.
func (p *Plane) features() []string {
	var flags, list []string
	if p.options.As != "" {
		flags = append(flags, "--emulated-version="+p.options.As)
	}
	for _, name := range slices.Sorted(maps.Keys(p.options.Gates)) {
		list = append(list, fmt.Sprintf("%s=%t", name, p.options.Gates[name]))
	}
	if list != nil {
		flags = append(flags, "--feature-gates="+strings.Join(list, ","))
	}
	return flags
}

// program is a running program.
type program struct {
	*host.Service
	number int // of its start
	pid    int
	log    string
}
