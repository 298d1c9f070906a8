// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node in a folder, with the sysfs of a recorded machine in memory.
type node struct {
	t       testing.TB
	sys     fs.FS
	kubelet string
	root    string
}

func newNode(t testing.TB, machine string, vfsPerPF int) *node {
	t.Helper()
	files := machines.Sys(t, machine, vfsPerPF)
	n := &node{t: t, sys: files, kubelet: kubelettest.Dir(t), root: t.TempDir()}
	for _, dir := range []string{filepath.Join(n.kubelet, "plugins_registry"), n.path("cdi")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.root, name) }
func (n *node) run() string             { return filepath.Join(n.kubelet, "run") }

// shown is a backend whose GPUs can fall ill.
type shown struct {
	*amd.Backend
	mu      sync.Mutex
	ill     map[string]bool
	hidden  string // the ID of one that is not there
	changed func()
}

func (s *shown) Discover() (gpu.Inventory, error) {
	found, err := s.Backend.Discover()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, devices := range found.Resources {
		for i := range devices {
			if s.ill[devices[i].ID] {
				devices[i].Fail("Xid 79")
			}
		}
		found.Resources[name] = slices.DeleteFunc(devices, func(d gpu.Device) bool { return d.ID == s.hidden })
	}
	return found, err
}

// hide has a GPU not be there when it is next looked.
func (s *shown) hide(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = id
}

func (s *shown) Watch(ctx context.Context, changed func()) error {
	s.mu.Lock()
	s.changed = changed
	s.mu.Unlock()
	changed()
	<-ctx.Done()
	return nil
}

// fallIll has GPUs fall ill, and all others be well.
func (s *shown) fallIll(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ill = map[string]bool{}
	for _, id := range ids {
		s.ill[id] = true
	}
	if s.changed != nil {
		s.changed()
	}
}

// config is that of a driver of the node, and its GPUs.
func (n *node) config(c *cluster) (dra.Config, *shown) {
	n.t.Helper()
	log := slog.New(slog.NewTextHandler(n.t.Output(), nil))
	backend, err := amd.New(n.sys, amd.Single)
	if err != nil {
		n.t.Fatal(err)
	}
	s := &shown{Backend: backend}
	gpus, err := gpu.Discover(s, 0, log)
	if err != nil {
		n.t.Fatal(err)
	}
	quiet := func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }
	vfs, err := rdma.FindVFs(pools.Finder{Sys: n.sys, Prefix: "tandem.dev"}, pools.Default(),
		rdma.Known{File: n.path("vfs.json")}, quiet, log)
	if err != nil {
		n.t.Fatal(err)
	}
	return dra.Config{
		NodeName: nodeName, KubeletDir: n.kubelet, RunDir: n.run(), CDIDir: n.path("cdi"),
		Client: client.New(c), GPUs: gpus, VFs: vfs,
		Tree:     func() (*topology.Tree, error) { return topology.Read(n.sys) },
		Host:     rdma.Host{Sys: n.sys, Dev: fstest.MapFS{}, DevinfoDir: n.path("devinfo")},
		VFsPerPF: 16, Log: log,
	}, s
}

// start runs a driver until the test ends or stop is called.
func (n *node) start(config dra.Config) (stop func()) {
	n.t.Helper()
	driver, err := dra.New(config)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- driver.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := kubelettest.Await(n.t, ended); err != nil {
			n.t.Errorf("run: %v", err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

// caller is the kubelet's side of a driver: it knows the sockets that are in its registry.
type caller struct {
	drapb.DRAPluginClient
	*grpc.ClientConn
	services []string
}

// register finds the driver in the registry, and tells it that it is known.
func (n *node) register() *caller {
	n.t.Helper()
	var socket string
	await(n.t, "the driver is in the registry", func() bool {
		found, err := filepath.Glob(filepath.Join(n.kubelet, "plugins_registry", "tandem.dev*-reg.sock"))
		if err == nil && len(found) > 0 {
			socket = found[0]
		}
		return socket != ""
	})
	registry := n.dial(socket)
	info, err := registerapi.NewRegistrationClient(registry).GetInfo(n.t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.GetType() != registerapi.DRAPlugin || info.GetName() != "tandem.dev" {
		n.t.Fatalf("%v, %v", info, err)
	}
	if _, err := registerapi.NewRegistrationClient(registry).NotifyRegistrationStatus(n.t.Context(),
		&registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		n.t.Fatal(err)
	}
	conn := n.dial(info.GetEndpoint())
	return &caller{drapb.NewDRAPluginClient(conn), conn, info.GetSupportedVersions()}
}

func (n *node) dial(socket string) *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// prepare asks for claims in one call, and returns the CDI devices or what was wrong.
func (k *caller) prepare(
	ctx context.Context, claims ...*resourceapi.ResourceClaim,
) (cdi []string, wrong string) {
	ctx, cancel := context.WithTimeout(ctx, kubelettest.Limit)
	defer cancel()
	request := &drapb.NodePrepareResourcesRequest{}
	for _, claim := range claims {
		request.Claims = append(request.Claims, &drapb.Claim{
			Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID),
		})
	}
	answer, err := k.NodePrepareResources(ctx, request)
	if err != nil {
		return nil, err.Error()
	}
	for _, claim := range claims {
		one := answer.GetClaims()[string(claim.UID)]
		for _, d := range one.GetDevices() {
			cdi = append(cdi, d.GetCdiDeviceIds()...)
		}
		wrong += one.GetError()
	}
	return cdi, wrong
}

// unprepare gives a claim back, and returns what was wrong.
func (k *caller) unprepare(ctx context.Context, claim *resourceapi.ResourceClaim) (wrong string) {
	answer, err := k.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{{
		Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID),
	}}})
	if err != nil {
		return err.Error()
	}
	return answer.GetClaims()[string(claim.UID)].GetError()
}

// specs are the CDI specs of claims.
func (n *node) specs() (names []string) {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.path("cdi"), "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range found {
		names = append(names, strings.TrimSuffix(filepath.Base(name), ".json"))
	}
	return names
}

// spec returns the CDI spec of a prepared claim, "" without one.
func (n *node) spec(claim *resourceapi.ResourceClaim) string {
	n.t.Helper()
	for _, name := range n.specs() {
		if !strings.Contains(name, string(claim.UID)) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(n.path("cdi"), name+".json"))
		if err != nil {
			n.t.Fatal(err)
		}
		return string(content)
	}
	return ""
}

// gpusAnew finds the GPUs as they are now, before a driver is started.
func gpusAnew(config *dra.Config, backend gpu.Backend) (err error) {
	config.GPUs, err = gpu.Discover(backend, 0, slog.New(slog.DiscardHandler))
	return err
}

// status is what the driver tells over its socket.
func (n *node) status(t *testing.T) (answer *api.StatusResponse) {
	t.Helper()
	await(t, "the driver tells its status", func() bool {
		told, err := coordination.Status(t.Context(), n.run())
		answer = told
		return err == nil && len(answer.GetResources()) > 0
	})
	return answer
}
