// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// byVariable: NVIDIA's runtime is told by a variable, in the order of the VFs.
func byVariable(t *testing.T, _ *node, gpus, _ grant) {
	t.Helper()
	visible := strings.Split(gpus.answer.GetEnvs()["NVIDIA_VISIBLE_DEVICES"], ",")
	slices.Sort(visible)
	if want := slices.Sorted(slices.Values(gpus.ids)); !slices.Equal(visible, want) {
		t.Errorf("visible %v, want %v", visible, want)
	}
}

// byVariableAndNodes: the kubelet gives the container its device nodes too, for the static CPU manager.
func byVariableAndNodes(t *testing.T, n *node, gpus, vfs grant) {
	t.Helper()
	byVariable(t, n, gpus, vfs)
	var cards []string
	for _, d := range gpus.answer.GetDevices() {
		if card.MatchString(d.GetHostPath()) {
			cards = append(cards, d.GetHostPath())
		}
	}
	slices.Sort(cards)
	if want := n.cards(gpus.ids); !slices.Equal(cards, want) {
		t.Errorf("device nodes %v, want %v", cards, want)
	}
}

// byNodes: the container is given AMD's device nodes, and those of its VFs.
func byNodes(t *testing.T, _ *node, gpus, vfs grant) {
	t.Helper()
	if nodes := gpus.answer.GetDevices(); len(nodes) != 1+2*len(gpus.ids) ||
		nodes[0].GetHostPath() != "/dev/kfd" {
		t.Errorf("device nodes of GPUs: %v", nodes)
	}
	if len(vfs.answer.GetDevices()) == 0 && len(vfs.answer.GetAnnotations()) == 0 {
		t.Errorf("no device nodes of VFs: %v", vfs.answer)
	}
}

// card is the device node of a GPU of NVIDIA's.
var card = regexp.MustCompile(`^/dev/nvidia\d+$`)

// cards are the device nodes of GPUs, sorted.
func (n *node) cards(ids []string) (nodes []string) {
	for _, g := range n.shown.GPUs {
		if slices.Contains(ids, g.UUID) {
			nodes = append(nodes, fmt.Sprint("/dev/nvidia", g.Minor))
		}
	}
	slices.Sort(nodes)
	return nodes
}

// throughCDI: the container is given names that a container runtime looks up in the node's specifications.
// There they have the device nodes of those GPUs and VFs, and of no others.
func throughCDI(t *testing.T, n *node, gpus, vfs grant) {
	t.Helper()
	if len(gpus.answer.GetEnvs()) > 0 {
		t.Errorf("variables %v beside CDI", gpus.answer.GetEnvs())
	}
	var names []string
	for _, d := range gpus.answer.GetCdiDevices() {
		names = append(names, d.GetName())
	}
	if said := annotated(t, gpus.answer); !slices.Equal(said, names) || len(names) != len(gpus.ids) {
		t.Errorf("annotations say %v, the field %v", said, names)
	}
	got, want := n.resolve(t, names), n.cards(gpus.ids)
	if cards := slices.DeleteFunc(slices.Clone(got), func(path string) bool {
		return !card.MatchString(path)
	}); !slices.Equal(cards, want) || !slices.Contains(got, "/dev/nvidiactl") {
		t.Errorf("the device nodes are %v, want %v and those of all GPUs", got, want)
	}
	if nodes := n.resolve(t, annotated(t, vfs.answer)); len(nodes) == 0 ||
		!strings.HasPrefix(nodes[len(nodes)-1], "/dev/infiniband/") {
		t.Errorf("device nodes of VFs: %v", nodes)
	}
}

// ownVerbs: the container is given the RDMA devices of its VFs or HCAs, each of which has one for verbs, and
// of no others.
func (n *node) ownVerbs(t *testing.T, vfs grant) {
	t.Helper()
	paths := n.resolve(t, annotated(t, vfs.answer))
	for _, d := range vfs.answer.GetDevices() {
		paths = append(paths, d.GetContainerPath())
	}
	var want []string
	for _, id := range vfs.ids {
		address, _, _ := strings.Cut(id, "::")
		found, err := filepath.Glob(n.path("sys/bus/pci/devices/" + address + "/infiniband_verbs/*"))
		ready(t, err)
		for _, verbs := range found {
			want = append(want, "/dev/infiniband/"+filepath.Base(verbs))
		}
	}
	got := slices.DeleteFunc(paths, func(path string) bool { return !strings.Contains(path, "uverbs") })
	slices.Sort(got)
	slices.Sort(want)
	if len(want) != len(vfs.ids) || !slices.Equal(got, want) {
		t.Errorf("%v is given %v, want %v", vfs.ids, got, want)
	}
}

// annotated are the names in the annotations of an answer.
func annotated(t *testing.T, answer *v1beta1.ContainerAllocateResponse) []string {
	t.Helper()
	_, names, err := cdi.ParseAnnotations(answer.GetAnnotations())
	ready(t, err)
	return names
}

// resolve looks devices up in the node's specifications, and returns the paths of their device nodes in the
// container, sorted.
func (n *node) resolve(t *testing.T, names []string) (paths []string) {
	t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(n.path("var/run/cdi")), cdi.WithAutoRefresh(false))
	ready(t, err)
	for _, name := range names {
		device := cache.GetDevice(name)
		if device == nil {
			t.Fatalf("no specification has %s: %v", name, cache.GetErrors())
		}
		for _, d := range slices.Concat(device.GetSpec().ContainerEdits.DeviceNodes,
			device.ContainerEdits.DeviceNodes) {
			paths = append(paths, d.Path)
			host := d.HostPath
			if host == "" {
				host = d.Path
			}
			if _, err := os.Stat(n.path(host)); err != nil && strings.Contains(host, "nvidia") {
				t.Errorf("%s is given %s, which the node does not have: %v", name, host, err)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
