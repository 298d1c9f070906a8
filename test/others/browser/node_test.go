// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
	"github.com/tandem-k8s/tandem/topology"
)

// node is a recorded machine laid out in a folder, with plugins that tell of it what the test says.
type node struct {
	api.UnimplementedCoordinationServer
	t   *testing.T
	dir string

	mu     sync.Mutex
	answer *api.StatusResponse
	asked  int
	server *grpc.Server
}

// Status answers tandem.
func (n *node) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.answer, nil
}

// Explain tells of a decision for whoever is asked about.
func (n *node) Explain(_ context.Context, r *api.ExplainRequest) (*api.ExplainResponse, error) {
	return &api.ExplainResponse{Decisions: []*api.Decision{{
		TimeUnixNano: 1, Asked: true, Size: 2, Available: 8, Resource: "amd.com/gpu",
		Container: &api.Owner{Namespace: r.GetNamespace(), Pod: r.GetPod(), Container: r.GetContainer()},
		Chosen:    []string{"0000:11:00.0", "0000:2f:00.0"}, Reason: "2 pairs: 2 PIX; VFs on 2 PFs",
	}}}, nil
}

func newNode(t *testing.T, machine string, vfs int) *node {
	t.Helper()
	chromium(t) // or skip, before there is work
	sys, tree := machines.Read(t, machine, vfs)
	dir := kubelettest.Dir(t)
	if err := os.CopyFS(filepath.Join(dir, "sys"), sys); err != nil {
		t.Fatal(err)
	}
	gpus := &api.Resource{Name: "nvidia.com/gpu", Kind: "gpu", Connected: true}
	nics := &api.Resource{Name: "example.com/rdma", Kind: "vf", Connected: true}
	for d := range tree.Devices() {
		switch {
		case d.Class.IsGPU() && d.Vendor == 0x10de:
			gpus.Devices = append(gpus.Devices, device(fmt.Sprintf("GPU-%08x", len(gpus.Devices)), d.Address))
		case d.IsVF():
			nics.Devices = append(nics.Devices, device(d.Address.String(), d.Address))
		}
	}
	n := &node{
		t: t, dir: dir, answer: &api.StatusResponse{Pid: 7, Protocol: 1, Resources: []*api.Resource{nics}},
	}
	if len(gpus.Devices) > 0 {
		n.answer.Resources = append(n.answer.Resources, gpus)
	} else {
		n.answer.Resources = append(n.answer.Resources, n.amd()...)
	}
	return n
}

// amd are the resources that AMD GPUs and their partitions make.
func (n *node) amd() (resources []*api.Resource) {
	backend, err := amd.New(os.DirFS(filepath.Join(n.dir, "sys")), amd.Mixed)
	if err != nil {
		n.t.Fatal(err)
	}
	inventory, err := backend.Discover()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(inventory.Resources)) {
		r := &api.Resource{Name: name, Kind: "gpu", Connected: true}
		for _, d := range inventory.Resources[name] {
			r.Devices = append(r.Devices, device(d.ID, d.Card))
		}
		resources = append(resources, r)
	}
	return resources
}

func device(id string, address topology.Address) *api.DeviceStatus {
	return &api.DeviceStatus{Device: &api.Device{Id: id, Address: address.String(), Healthy: true}}
}

// live gives the devices every look: pods of up to four, some whose owner is not known, stranded, unhealthy
// and planned ones.
func (n *node) live() {
	plan := &api.Plan{Devices: map[string]*api.DeviceList{}}
	for _, r := range n.answer.GetResources() {
		for i, d := range r.GetDevices() {
			switch {
			case i%11 < 6:
				n.give(d, fmt.Sprintf("train-%d", i/4))
			case i%11 < 8:
				d.Stranded = true
			case i%11 == 8 && i < 20:
				d.Device.Healthy = false
			case i%11 == 9:
				plan.Devices[r.GetName()] = &api.DeviceList{Ids: []string{d.GetDevice().GetId()}}
			}
		}
		last := r.GetDevices()[len(r.GetDevices())-1]
		last.Allocated, last.Device.Healthy, last.Owner = true, false,
			&api.Owner{Namespace: "team-b", Pod: "serve", Container: "model"}
	}
	n.answer.Plan = plan
}

func (n *node) give(d *api.DeviceStatus, pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.Allocated, d.Owner = true, &api.Owner{Namespace: "team-a", Pod: pod, Container: "worker"}
}

// start starts the plugins, stop ends them.
func (n *node) start() {
	n.t.Helper()
	run := filepath.Join(n.dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		n.t.Fatal(err)
	}
	listener, err := net.Listen("unix", coordination.SocketPath(run))
	if err != nil {
		n.t.Fatal(err)
	}
	n.server = grpc.NewServer()
	api.RegisterCoordinationServer(n.server, n)
	go func() { _ = n.server.Serve(listener) }() // until stop
	n.t.Cleanup(n.server.Stop)
}

// page starts tandem status --serve and returns where it is, and what ends it.
func (n *node) page(address string) (url string, end func()) {
	n.t.Helper()
	tandem := filepath.Join(programs.Build(n.t, "tandem"), "tandem")
	cmd := exec.Command(tandem, "status", "--serve", address, "--run-dir", filepath.Join(n.dir, "run"),
		"--sysfs-root", filepath.Join(n.dir, "sys"), "--kubelet-dir", n.dir)
	cmd.Env = append(os.Environ(), "NODE_NAME=gpu-node-7")
	return serving(n.t, cmd)
}

// serving starts tandem with a page, and returns the address of the page and a function that ends tandem.
func serving(t *testing.T, cmd *exec.Cmd) (url string, end func()) {
	t.Helper()
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out, drained := bufio.NewReader(stdout), make(chan struct{})
	line, err := out.ReadString('\n')
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out) // until the process ends
	}()
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // gone where it failed, which Wait tells
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
	})
	t.Cleanup(end)
	url, _, ok := strings.Cut(line, " ")
	if err != nil || !ok {
		t.Fatalf("%s says %q: %v", strings.Join(cmd.Args, " "), line, err)
	}
	return url, end
}
