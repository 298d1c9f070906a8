// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
)

// bridge links GPUs 0 and 2, and 1 and 3, by NVLink bridges, the second pair by half as many.
func bridge(m *nvml.Machine) {
	for _, pair := range [][3]int{{0, 2, 12}, {1, 3, 6}} {
		a, b := &m.GPUs[pair[0]], &m.GPUs[pair[1]]
		a.Links = map[topology.Address]int{b.Address: pair[2]}
		b.Links = map[topology.Address]int{a.Address: pair[2]}
	}
}

// patience is a plugin's timeout for the coordinator, after which the plugin chooses alone.
const patience = 80 * time.Millisecond

// ask returns the preferred devices. It asks again if the coordinator's answer can have been too late for the
// plugin.
func ask(t *testing.T, plugin *kubelettest.Plugin, available []string, size int) []string {
	t.Helper()
	for range 50 {
		began := time.Now()
		chosen, err := plugin.Prefer(t.Context(), available, nil, size)
		if err != nil || len(chosen) != size {
			t.Fatalf("%d of %v: %v, %v", size, available, chosen, err)
		}
		if time.Since(began) < patience {
			return chosen
		}
	}
	t.Fatal("this computer is too busy for an answer in time")
	panic("unreachable")
}

// give allocates the preferred devices.
func give(t *testing.T, plugin *kubelettest.Plugin, available []string, size int) []string {
	t.Helper()
	chosen := ask(t, plugin, available, size)
	began := time.Now()
	if _, err := plugin.Allocate(t.Context(), chosen...); err != nil {
		t.Fatal(err)
	}
	inTime(t, began)
	return chosen
}

// inTime skips the test on a computer too busy for timely answers, because late answers differ.
func inTime(t *testing.T, began time.Time) {
	t.Helper()
	if took := time.Since(began); took >= patience {
		t.Skipf("this computer is too busy: an answer took %s, and tandem-gpu waits %s for the coordinator",
			took, patience)
	}
}

// TestPrefersLinks compares the preference for every set of free GPUs with the best of all choices.
func TestPrefersLinks(t *testing.T) {
	t.Attr("parity", "nvidia/preferred-nvlink")
	n := nvidiaNode(t, "nv-a100pcie-cx6dx-vf-partial", bridge)
	_, _, plugin := n.offers(t, nil)
	await(t, plugin, "4")
	gpus := n.Machine.GPUs
	linked := func(set int) (links int) {
		for i := range gpus {
			for j := range i {
				if set>>i&1 == 1 && set>>j&1 == 1 {
					links += gpus[i].Links[gpus[j].Address]
				}
			}
		}
		return links
	}
	for free := 1; free < 1<<len(gpus); free++ {
		for size := 1; size <= bits.OnesCount(uint(free)); size++ {
			best := 0
			for set := range 1 << len(gpus) {
				if set&^free == 0 && bits.OnesCount(uint(set)) == size {
					best = max(best, linked(set))
				}
			}
			var available []string
			for i := range gpus {
				if free>>i&1 == 1 {
					available = append(available, gpus[i].UUID)
				}
			}
			preferred := ask(t, plugin, available, size)
			chosen := 0
			for i := range gpus {
				if slices.Contains(preferred, gpus[i].UUID) {
					chosen |= 1 << i
				}
			}
			if linked(chosen) != best {
				t.Errorf("%d of %04b: %04b has %d links, the best choice %d", size, free, chosen, linked(chosen), best)
			}
		}
	}
}

// TestPairs allocates a replica of a GPU or a MIG device, and then a VF of tandem-rdma, which must be on the
// same switch.
func TestPairs(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*nvml.Machine)
		file     string
		resource string
	}{
		{"replicas", nil, "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
			"nvidia.com/gpu"},
		{"MIG devices", func(m *nvml.Machine) {
			for i := range m.GPUs {
				m.GPUs[i].Split(2, 2, 40320)
			}
		}, "flags: {migStrategy: mixed}", "nvidia.com/mig-3g.40gb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := nvidiaNode(t, "nv-h100-oci", c.change)
			tree, err := topology.Read(os.DirFS(filepath.Join(n.dir, "sys")))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(n.dir, "config.yaml")
			write(t, file, c.file)
			kubelet, _, gpus := n.offers(t, nil, "--config-file="+file)
			if got := gpus.Request.GetResourceName(); got != c.resource {
				t.Fatalf("registered %s", got)
			}
			vfs := n.vfs(t, kubelet)
			free := ids(kubelettest.Await(t, vfs.Lists))
			rest := ids(kubelettest.Await(t, gpus.Lists))
			n.joined(t, c.resource, "nvidia.com/vf")
			var held []published.Entry
			n.checkpoint(t, held...)
			for len(free) > 0 && len(rest) > 0 {
				chosen := give(t, gpus, rest, 1)
				vf := give(t, vfs, free, 1)
				address, err := topology.ParseAddress(vf[0])
				if err != nil {
					t.Fatal(err)
				}
				if d := tree.Distance(n.card(t, chosen[0]), address); !d.Level.Direct() {
					t.Errorf("%s and %s are %s", chosen[0], vf[0], d.Level)
				}
				held = append(held,
					published.Give("pod", fmt.Sprint("c", len(held)), c.resource, chosen...),
					published.Give("pod", fmt.Sprint("c", len(held)), "nvidia.com/vf", vf...))
				n.checkpoint(t, held...)
				rest = slices.DeleteFunc(rest, func(id string) bool { return id == chosen[0] })
				free = slices.DeleteFunc(free, func(id string) bool { return id == vf[0] })
			}
		})
	}
}

// checkpoint writes the kubelet's checkpoint, as after the allocation of all resources of a container, so
// that the next container is a new one.
func (n *node) checkpoint(t *testing.T, held ...published.Entry) {
	t.Helper()
	if err := published.WriteCheckpoint(n.dir, held...); err != nil {
		t.Fatal(err)
	}
}

// joined waits until these resources take part in the coordination.
func (n *node) joined(t *testing.T, resources ...string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < kubelettest.Limit; <-look.C {
		answer, _ := coordination.Status(t.Context(), filepath.Join(n.dir, "run"))
		there := 0
		for _, r := range answer.GetResources() {
			if slices.Contains(resources, r.GetName()) && r.GetConnected() {
				there++
			}
		}
		if there == len(resources) {
			return
		}
	}
	t.Fatalf("%v did not join", resources)
}

func ids(devices []*v1beta1.Device) []string {
	var list []string
	for _, d := range devices {
		list = append(list, d.GetID())
	}
	return list
}

// card returns the address of an ID's GPU.
func (n *node) card(t *testing.T, id string) topology.Address {
	t.Helper()
	uuid, _, _ := strings.Cut(id, "::")
	for _, g := range n.Machine.GPUs {
		if g.UUID == uuid || slices.ContainsFunc(g.Slices, func(s nvml.Slice) bool { return s.UUID == uuid }) {
			return g.Address
		}
	}
	t.Fatalf("%s is no device", id)
	panic("unreachable")
}

// vfs starts tandem-rdma next to tandem-gpu, with all VFs, or with some.
func (n *node) vfs(t *testing.T, kubelet *kubelettest.Kubelet, addresses ...string) *kubelettest.Plugin {
	t.Helper()
	selectors := map[string]any{"vendors": []string{"15b3"}, "isRdma": true}
	if len(addresses) > 0 {
		selectors["pciAddresses"] = addresses
	}
	content, err := json.Marshal(map[string]any{
		"resourceList": []any{map[string]any{"resourceName": "vf", "selectors": selectors}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.dir, "config.json")
	write(t, file, string(content))
	execute(t, "tandem-rdma", nil, "--kubelet-dir="+n.dir, "--run-dir="+filepath.Join(n.dir, "run"),
		"--sysfs-root="+filepath.Join(n.dir, "sys"),
		"--dev-root="+filepath.Join(n.dir, "dev"), "--config-file="+file, "--resource-prefix=nvidia.com",
		"--devinfo-dir="+filepath.Join(n.dir, "devinfo"))
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if name := plugin.Request.GetResourceName(); name != "nvidia.com/vf" {
		t.Fatal(fmt.Sprint("registered ", name))
	}
	return plugin
}
