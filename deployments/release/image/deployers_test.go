// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

// configMaps are those that the manifests of testdata mount.
func configMaps(t *testing.T) map[string]map[string]string {
	t.Helper()
	script, err := os.ReadFile("testdata/nvidia-gpu-operator.sh")
	ready(t, err)
	return map[string]map[string]string{
		// The SR-IOV network operator has a key per node.
		"vfs":                             {"config.json": vfConfig, nodeName: policyConfig},
		"nics":                            {"config.json": nicConfig},
		"rdma-devices":                    {"config.json": hcaConfig},
		"nvidia-device-plugin-entrypoint": {"entrypoint.sh": string(script)},
		"plugin-config": {
			"default": "version: v1\n",
			"shared": "version: v1\nsharing: {timeSlicing: {renameByDefault: true, " +
				"resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n",
		},
	}
}

// TestDeployers starts both plugins as those who deploy the stock ones start theirs, with nothing changed but
// the image: a container with two GPUs and two VFs, or shared HCAs, gets pairs on one switch each.
func TestDeployers(t *testing.T) {
	t.Attr("parity", "sriov/daemonset-shape")
	const mi300x, h100, h800 = "oci-mi300x-derived", "nv-h100-oci", "nv-h800-8x8"
	const driver = " -driver_type=container -resource_naming_strategy=single"
	for _, c := range []struct {
		row       string // of the parity checklist
		gpus, vfs string // of testdata
		noVFs     bool   // on the NICs
		arguments string // for the plugin of the GPUs
		machine   string
		check     func(t *testing.T, n *node, gpus, vfs grant)
	}{
		{"nvidia/image-shape", "nvidia-gpu-operator", "nvidia-network-operator", false, "", h100, throughCDI},
		{"shared/cdi-mode", "nvidia-gpu-operator", "nvidia-network-operator-shared", true, "", h100, throughCDI},
		{"nvidia/securitycontext", "nvidia-chart", "sriov-network-operator", false, "", h100, byVariable},
		{"nvidia/image-shape", "nvidia-static", "sriov-static", false, "", h800, byVariable},
		{"shared/device-nodes", "nvidia-chart", "rdma-shared-static", true, "", h800, byVariable},
		{"nvidia/image-shape", "nvidia-static-cpumanager", "sriov-network-operator", false, "", h100,
			byVariableAndNodes},
		{"amdnic/config-json", "amd-gpu-operator", "amd-network-operator", false, "", mi300x, byNodes},
		{"amd/flag-driver-type", "amd-gpu-operator", "amd-network-operator", true, driver, mi300x, byNodes},
		{"shared/device-nodes", "amd-gpu-operator", "rdma-shared-static", true, "", mi300x, byNodes},
		{"amd/image-shape", "amd-static", "sriov-network-operator", false, "", mi300x, byNodes},
		{"amd/flag-pulse", "amd-static-health", "sriov-static", false, "", mi300x, byNodes},
		{"amd/helm-unprivileged", "amd-chart", "nvidia-network-operator", false, "", mi300x, byNodes},
	} {
		want := offered(c.vfs, !c.noVFs)
		t.Run(c.gpus+" with "+c.vfs+" "+want.resource+c.arguments, func(t *testing.T) {
			for _, row := range []string{c.row, deployer(c.gpus), deployer(c.vfs)} {
				t.Attr("parity", row)
			}
			n := nodeFor(t, c.machine, want.perPF)
			if c.vfs == "amd-network-operator" {
				n.installPollara(t)
			}
			spec := readSpec(t, c.gpus)
			if command := spec.Containers[0].Command; c.arguments != "" {
				command[len(command)-1] += c.arguments
			}
			pods := []*pod{n.run(t, spec), n.run(t, readSpec(t, c.vfs))}
			gpus, vfs := kubelettest.Await(t, n.kubelet.Plugins), kubelettest.Await(t, n.watcher.Plugins)
			if g, v := gpus.Request.GetResourceName(), vfs.Request.GetResourceName(); v != want.resource ||
				g != "amd.com/gpu" && c.machine == mi300x || g != "nvidia.com/gpu" && c.machine != mi300x {
				t.Errorf("registered %s and %s", g, v)
			}
			g, v := n.give(t, gpus, vfs, want)
			c.check(t, n, g, v)
			n.ownVerbs(t, v)
			for _, p := range pods {
				if said := p.execute(t, "tandem", "status", "-o", "wide"); !strings.Contains(said, v.ids[0]) ||
					!strings.Contains(said, n.card(t, g.ids[0]).String()) {
					t.Errorf("%s: tandem status:\n%s", p.spec.Containers[0].Name, said)
				}
			}
		})
	}
}

// deployer is the row of the parity checklist for who deploys a pod of testdata.
func deployer(spec string) string {
	for _, variant := range []string{"-cpumanager", "-health", "-shared", "-config"} {
		spec = strings.TrimSuffix(spec, variant)
	}
	return "deployer/" + spec
}

// nodeFor is a node with the image, and with NVIDIA's driver where the machine has NVIDIA's GPUs.
func nodeFor(t *testing.T, machine string, vfsPerPF int) *node {
	t.Helper()
	if !strings.HasPrefix(machine, "nv-") {
		return newNode(t, sharedRoot(t, programs(t)), machine, vfsPerPF)
	}
	nvml.Library(t) // skips where there is no C compiler
	n := newNode(t, sharedRoot(t, withNVML(t)), machine, vfsPerPF)
	n.installDriver(t)
	return n
}

// grant is what a container is given of one resource.
type grant struct {
	ids    []string
	answer *v1beta1.ContainerAllocateResponse
}

// give admits a container with two GPUs and two VFs, in the kubelet's way, and sees that they are pairs.
func (n *node) give(t *testing.T, gpus, vfs *kubelettest.Plugin, want nics) (g, v grant) {
	t.Helper()
	allGPUs, allVFs := healthy(kubelettest.Await(t, gpus.Lists)), healthy(kubelettest.Await(t, vfs.Lists))
	if len(allGPUs) != 8 || len(allVFs) != want.healthy {
		t.Fatalf("%d healthy GPUs and %d VFs", len(allGPUs), len(allVFs))
	}
	n.meet(t, gpus.Request.GetResourceName(), vfs.Request.GetResourceName())
	tree, err := topology.Read(os.DirFS(n.path("sys")))
	ready(t, err)
	g, v = allocate(t, gpus, allGPUs[2:], 2), allocate(t, vfs, allVFs, 2)
	variable := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(want.resource))
	for i, id := range g.ids {
		// The list of VFs is in the order of the GPUs.
		vf := strings.Split(v.answer.GetEnvs()[variable], ",")[i]
		address, err := topology.ParseAddress(vf)
		ready(t, err)
		if d := tree.Distance(n.card(t, id), address); !d.Level.Direct() {
			t.Errorf("%s and %s are %s", id, vf, d.Level)
		}
	}
	return g, v
}

func healthy(devices []*v1beta1.Device) (ids []string) {
	for _, d := range devices {
		if d.GetHealth() == v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	return ids
}

// allocate does what the kubelet does for one resource of a container.
func allocate(t *testing.T, plugin *kubelettest.Plugin, free []string, count int) grant {
	t.Helper()
	chosen, err := plugin.Prefer(t.Context(), free, nil, count)
	ready(t, err)
	if len(chosen) != count {
		t.Fatalf("%d devices are preferred: %v", len(chosen), chosen)
	}
	answer, err := plugin.Allocate(t.Context(), chosen...)
	ready(t, err)
	return grant{chosen, answer}
}

// TestDeployersConfig changes the label of a node by which NVIDIA's config-manager, of our image too, chooses
// the plugin's configuration.
func TestDeployersConfig(t *testing.T) {
	t.Attr("parity", "nvidia/config-manager-sighup")
	t.Attr("parity", "nvidia/image-shape")
	for _, spec := range []string{"nvidia-gpu-operator-config", "nvidia-chart-config"} {
		t.Run(spec, func(t *testing.T) {
			t.Attr("parity", deployer(spec))
			n := nodeFor(t, "nv-h100-oci", 2)
			api := apiserver.Serve(t, "")
			n.joinCluster(t, api)
			n.run(t, readSpec(t, spec))
			if got := n.registered(t); got != "nvidia.com/gpu" {
				t.Errorf("without a label: registered %s", got)
			}
			for _, step := range []struct{ label, want string }{
				{"shared", "nvidia.com/gpu.shared"}, {"default", "nvidia.com/gpu"}, {"shared", "nvidia.com/gpu.shared"},
				{"", "nvidia.com/gpu"},
			} {
				api.Set(step.label)
				if got := n.registered(t); got != step.want {
					t.Errorf("label %q: registered %s, want %s", step.label, got, step.want)
				}
			}
		})
	}
}

func address(t *testing.T, of string) (host, port string) {
	t.Helper()
	u, err := url.Parse(of)
	ready(t, err)
	return u.Hostname(), u.Port()
}
