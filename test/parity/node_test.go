// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	standin "github.com/tandem-k8s/tandem/test/podresources"
	"github.com/tandem-k8s/tandem/test/programs"
)

// node is a recorded machine with a kubelet, and the two plugins on it as processes.
type node struct {
	slowest time.Duration // answer
	dir     string
	kubelet *kubelettest.Kubelet
	running map[string]*exec.Cmd           // by name of the program
	plugins map[string]*kubelettest.Plugin // by resource
	lists   map[string][]*v1beta1.Device   // the first of each

	admissions []entry // what the checkpoint says
}

const (
	gpuProgram, vfProgram = "tandem-gpu", "tandem-rdma"
	gpuName, vfName       = "amd.com/gpu", "tandem.dev/rdma_vf"
	checkpoint            = "kubelet_internal_checkpoint"
)

// start lays the machine out, with one VF for each PF, lets change change it, and starts the programs.
func start(t *testing.T, change func(sys string), names ...string) *node {
	t.Helper()
	root := machines.Sys(t, "oci-mi300x-derived", 1)
	n := &node{
		dir:     kubelettest.Dir(t),
		running: map[string]*exec.Cmd{},
		plugins: map[string]*kubelettest.Plugin{},
		lists:   map[string][]*v1beta1.Device{},
	}
	if err := errors.Join(os.CopyFS(n.path("sys"), root), os.Mkdir(n.path("dev"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(n.path("sys"))
	}
	config := `{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "tandem.dev", "selectors": {"vendors": ["15b3"]}}]}`
	if err := os.WriteFile(n.path("config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.kubelet = kubelettest.Start(t, n.dir)
	n.admitted(t, "", "", nil)
	for _, name := range names {
		n.run(t, name)
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// run starts a program and waits until its resource has devices.
func (n *node) run(t *testing.T, program string) {
	t.Helper()
	args := []string{
		"--sysfs-root=" + n.path("sys"), "--dev-root=" + n.path("dev"), "--kubelet-dir=" + n.dir,
		"--run-dir=" + n.path("run"),
	}
	if program == vfProgram {
		args = append(args, "--config-file="+n.path("config.json"), "--devinfo-dir="+n.path("devinfo"))
	}
	c := exec.Command(filepath.Join(programs.Build(t, program), program), args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	n.running[program] = c
	t.Cleanup(func() {
		if n.running[program] == c {
			n.kill(t, program)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", program, &log)
		}
	})
	plugin := kubelettest.Await(t, n.kubelet.Plugins)
	name := plugin.Request.GetResourceName()
	n.plugins[name], n.lists[name] = plugin, kubelettest.Await(t, plugin.Lists)
	n.awaitAnnounced(t, name)
}

// awaitAnnounced waits until whoever coordinates knows of a resource.
func (n *node) awaitAnnounced(t *testing.T, resource string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubelettest.Limit)
	defer cancel()
	for {
		status, err := coordination.Status(ctx, n.path("run"))
		for _, r := range status.GetResources() {
			if r.GetName() == resource && r.GetConnected() {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not announced: %v, %v", resource, status, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill ends a program without a chance to tidy up.
func (n *node) kill(t *testing.T, program string) {
	t.Helper()
	c := n.running[program]
	delete(n.running, program)
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = c.Wait()
}

// show has the kubelet's PodResources show what a container has while it waits for its second resource.
func (n *node) show(t *testing.T, devices map[string][]string) {
	t.Helper()
	container := &podresources.ContainerResources{Name: "c"}
	for resource, ids := range devices {
		container.Devices = append(container.Devices, &podresources.ContainerDevices{
			ResourceName: resource, DeviceIds: ids,
		})
	}
	pod := &podresources.PodResources{
		Name: "pod", Namespace: "default", Containers: []*podresources.ContainerResources{container},
	}
	standin.Serve(t, n.dir, standin.Server{Pods: func() []*podresources.PodResources {
		return []*podresources.PodResources{pod}
	}})
}

// entry is a line of the kubelet's device checkpoint (pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go).
type entry struct {
	PodUID, ContainerName, ResourceName string
	DeviceIDs                           map[int][]string
}

// admitted writes the checkpoint, as the kubelet does once a container has all its devices.
func (n *node) admitted(t *testing.T, pod, container string, devices map[string][]string) {
	t.Helper()
	for resource, ids := range devices {
		n.admissions = append(n.admissions, entry{pod, container, resource, map[int][]string{-1: ids}})
	}
	content, err := json.Marshal(map[string]any{
		"Data": map[string]any{"PodDeviceEntries": n.admissions, "RegisteredDevices": map[string][]string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path("checkpoint"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.path("checkpoint"),
		filepath.Join(kubelettest.Plugins(n.dir), checkpoint)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) ids(resource string) (ids []string) {
	for _, d := range n.lists[resource] {
		ids = append(ids, d.GetID())
	}
	return ids
}

// patience is how long the plugins wait for PodResources; what does not answer by then they do without.
const patience = 50 * time.Millisecond

// timed notes an answer that came late: what is given then need not be what would be chosen.
func (n *node) timed(began time.Time) { n.slowest = max(n.slowest, time.Since(began)) }

// prefer asks as the kubelet does; what comes back must be what it can use.
func (n *node) prefer(t *testing.T, resource string, available, held []string, size int) []string {
	t.Helper()
	began := time.Now()
	chosen, err := n.plugins[resource].Prefer(t.Context(), available, held, size)
	n.timed(began)
	if err != nil {
		t.Fatalf("%s: %v", resource, err)
	}
	for i, id := range chosen {
		if !slices.Contains(available, id) || slices.Contains(chosen[:i], id) {
			t.Errorf("%s: chosen %v of %v", resource, chosen, available)
		}
	}
	for _, id := range held {
		if slices.Contains(available, id) && len(held) <= size && !slices.Contains(chosen, id) {
			t.Errorf("%s: %s is held, and not in %v", resource, id, chosen)
		}
	}
	return chosen
}

func (n *node) allocate(t *testing.T, resource string, ids []string) *v1beta1.ContainerAllocateResponse {
	t.Helper()
	began := time.Now()
	answer, err := n.plugins[resource].Allocate(t.Context(), ids...)
	n.timed(began)
	if err != nil {
		t.Fatalf("%s: %v", resource, err)
	}
	return answer
}
