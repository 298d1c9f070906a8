// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/machines"
	standin "github.com/tandem-k8s/tandem/test/podresources"
)

// plugins answer as the plugins of a node do.
type plugins struct {
	api.UnimplementedCoordinationServer
	status  *api.StatusResponse // nil if they hang
	explain func(*api.ExplainRequest) ([]*api.Decision, error)
}

// errHung is what a client gets from a server that accepts connections and answers no question in time.
var errHung = status.Error(codes.DeadlineExceeded, "context deadline exceeded")

func (p plugins) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	if p.status == nil {
		return nil, errHung
	}
	return p.status, nil
}

func (p plugins) Explain(ctx context.Context, r *api.ExplainRequest) (*api.ExplainResponse, error) {
	if p.explain == nil {
		return p.UnimplementedCoordinationServer.Explain(ctx, r)
	}
	decisions, err := p.explain(r)
	return &api.ExplainResponse{Decisions: decisions}, err
}

// run answers in a run folder.
func (p plugins) run(t *testing.T, runDir string) {
	t.Helper()
	ready(t, os.MkdirAll(runDir, 0o700))
	standin.Listen(t, coordination.SocketPath(runDir), func(g *grpc.Server) {
		api.RegisterCoordinationServer(g, p)
	})
}

// twoPairs are plugins that have allocated two pairs to team/train-0, and decided the same for every pod.
func twoPairs() plugins {
	owner := &api.Owner{Namespace: "team", Pod: "train-0", Container: "worker"}
	resource := func(name, kind string, addresses ...string) *api.Resource {
		r := &api.Resource{Name: name, Kind: kind, Connected: true}
		for _, a := range addresses {
			r.Devices = append(r.Devices, &api.DeviceStatus{
				Device: &api.Device{Id: a, Address: a, Healthy: true}, Allocated: true, Owner: owner,
			})
		}
		return r
	}
	gpus := []string{ociGPU0, ociGPU1}
	return plugins{
		status: &api.StatusResponse{Pid: 7, Protocol: 1, Resources: []*api.Resource{
			resource("amd.com/gpu", "gpu", gpus...), resource("tandem.dev/rdma_vf", "vf", ociVF0, ociVF1),
		}},
		explain: func(r *api.ExplainRequest) ([]*api.Decision, error) {
			return []*api.Decision{{
				Container: &api.Owner{Namespace: r.GetNamespace(), Pod: r.GetPod(), Container: "worker"},
				Resource:  "amd.com/gpu", Asked: true, Size: 2, Chosen: gpus, Allocated: gpus,
			}}, nil
		},
	}
}

// onMachine returns an answer with the GPUs and VFs of a machine, all of them free.
func onMachine(t *testing.T, machine string, perPF int) *api.StatusResponse {
	t.Helper()
	_, tree := machines.Read(t, machine, perPF)
	gpus := &api.Resource{Name: "amd.com/gpu", Kind: "gpu", Connected: true}
	vfs := &api.Resource{Name: "tandem.dev/rdma_vf", Kind: "vf", Connected: true}
	for d := range tree.Devices() {
		offered := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		one := &api.DeviceStatus{Switch: tree.Switch(d.Address), Device: offered.Encode()}
		switch {
		case d.Class.IsGPU():
			gpus.Devices = append(gpus.Devices, one)
		case d.IsVF():
			vfs.Devices = append(vfs.Devices, one)
		}
	}
	version := &api.Version{Major: 2, Minor: 1, Build: "v1.4.0"}
	return &api.StatusResponse{
		Pid: 7, Protocol: 2, Minor: 1, Resources: []*api.Resource{gpus, vfs}, Peers: []*api.Peer{
			{Pid: 7, Serves: true, Version: version, Resources: []string{gpus.GetName()}},
			{Pid: 9, Version: version, Resources: []string{vfs.GetName()}},
		},
	}
}

func give(owner string, devices ...*api.DeviceStatus) {
	name := strings.Split(owner, "/")
	for _, d := range devices {
		d.Allocated, d.Owner = true, &api.Owner{Namespace: name[0], Pod: name[1], Container: name[2]}
	}
}

// idsOf returns the IDs of all devices by resource.
func idsOf(answer *api.StatusResponse) map[string][]string {
	ids := map[string][]string{}
	for _, r := range answer.GetResources() {
		for _, d := range r.GetDevices() {
			ids[r.GetName()] = append(ids[r.GetName()], d.GetDevice().GetId())
		}
	}
	return ids
}

// podResources answers as a kubelet with the IDs of devices by resource; one without hangs.
type podResources struct {
	podresources.UnimplementedPodResourcesListerServer
	devices map[string][]string
}

func (p podResources) List(
	ctx context.Context, r *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	if p.devices == nil {
		return nil, errHung
	}
	return p.UnimplementedPodResourcesListerServer.List(ctx, r)
}

func (p podResources) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	if p.devices == nil {
		return nil, errHung
	}
	answer := &podresources.AllocatableResourcesResponse{}
	for name, ids := range p.devices {
		answer.Devices = append(answer.Devices, &podresources.ContainerDevices{ResourceName: name, DeviceIds: ids})
	}
	return answer, nil
}

// answer runs plugins and a kubelet with all devices on the node, but for one that hangs.
func (s *sick) answer(hangs string) {
	s.t.Helper()
	all := onMachine(s.t, oci, 1)
	answers, kubelet := plugins{status: all}, podResources{devices: idsOf(all)}
	switch hangs {
	case "hung-coordinator":
		answers = plugins{}
	case "hung-kubelet":
		kubelet = podResources{}
	}
	s.serve(answers, kubelet)
}

func (s *sick) serve(answers plugins, kubelet podResources) {
	s.t.Helper()
	s.remove("kubelet/pod-resources")
	standin.Serve(s.t, s.path("kubelet"), kubelet)
	answers.run(s.t, s.path("run"))
}

// drive runs a DRA driver with these notes.
func (s *sick) drive(notes []string) {
	s.t.Helper()
	answer := onMachine(s.t, oci, 1)
	answer.Mode, answer.Notes = string(coordination.DRA), notes
	s.serve(plugins{status: answer}, podResources{devices: map[string][]string{}})
}

// offer runs a tandem-rdma with all VFs of the machine: with their NUMA nodes, without, or one that is away.
func (s *sick) offer(how string) {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*/physfn"))
	s.check(err)
	gone := &api.Device{Id: "0000:0c:00.7", Address: "0000:0c:00.7", Healthy: true}
	vfs := []*api.DeviceStatus{{Device: gone}}
	for _, function := range functions {
		address := filepath.Base(filepath.Dir(function))
		vf := &api.Device{Id: address, Address: address, Healthy: true}
		if socket := uint32(0); how == "with-nodes" {
			if address[5:7] >= "80" { // the bus
				socket = 1
			}
			vf.Numa = &socket
		}
		vfs = append(vfs, &api.DeviceStatus{Device: vf})
	}
	away := how == "nothing"
	answer := &api.StatusResponse{Resources: []*api.Resource{
		{Name: "amd.com/gpu", Kind: "gpu", Connected: true},
		{Name: "tandem.dev/rdma_vf", Kind: "vf", Connected: !away, Devices: vfs},
		{Name: "tandem.dev/again", Kind: "vf", Connected: !away, Devices: vfs},
	}}
	s.serve(plugins{status: answer}, podResources{devices: idsOf(answer)})
}
