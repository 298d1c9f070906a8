// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/topology"
)

// pod is a container's view of a laid-out machine.
type pod struct {
	t    *testing.T
	root string
	env  map[string]string
	args []string
}

func newPod(t *testing.T, machine string, perPF int) *pod {
	t.Helper()
	p := &pod{t: t, root: t.TempDir(), env: map[string]string{}}
	if err := os.Symlink(sysfs(t, machine, perPF), p.path("sys")); err != nil {
		t.Fatal(err)
	}
	p.file("dev/null", "")
	return p
}

func (p *pod) path(name string) string { return filepath.Join(p.root, name) }

func (p *pod) file(name, content string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path(name), []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// amd gives the container the nodes of GPUs.
func (p *pod) amd(addresses ...string) *pod {
	p.t.Helper()
	p.file("dev/kfd", "")
	for _, address := range addresses {
		nodes, err := filepath.Glob(p.path("sys/bus/pci/devices/" + address + "/drm/renderD*"))
		if err != nil || len(nodes) != 1 {
			p.t.Fatalf("%s has the render nodes %q: %v", address, nodes, err)
		}
		p.file("dev/dri/"+filepath.Base(nodes[0]), "")
	}
	return p
}

// nvidia adds the files of NVIDIA's driver, the i-th GPU with the minor i, and the device nodes of some GPUs.
func (p *pod) nvidia(given ...int) *pod {
	p.t.Helper()
	tree, err := topology.Read(os.DirFS(p.path("sys")))
	if err != nil {
		p.t.Fatal(err)
	}
	minor := 0
	for d := range tree.Devices() {
		if gpu.Vendor(d) != "" {
			p.file(fmt.Sprintf("proc/driver/nvidia/gpus/%s/information", d.Address),
				fmt.Sprintf("Model: \t\t NVIDIA H800\nGPU UUID: \t GPU-%d\nBus Location: \t %s\nDevice Minor: \t %d\n",
					minor, d.Address, minor))
			minor++
		}
	}
	for _, i := range given {
		p.file(fmt.Sprintf("dev/nvidia%d", i), "")
	}
	for _, shared := range []string{"nvidiactl", "nvidia-uvm"} {
		p.file("dev/"+shared, "")
	}
	return p
}

// vfs gives the container VFs, with their nodes.
func (p *pod) vfs(addresses ...string) *pod {
	p.t.Helper()
	p.env["PCIDEVICE_TANDEM_DEV_RDMA_VF"] = strings.Join(addresses, ",")
	p.env["PCIDEVICE_TANDEM_DEV_RDMA_VF_INFO"] = "{}"
	for _, address := range addresses {
		nodes, _ := filepath.Glob(p.path("sys/bus/pci/devices/" + address + "/infiniband_verbs/*"))
		for _, node := range nodes {
			p.file("dev/infiniband/"+filepath.Base(node), "")
		}
	}
	return p
}

func (p *pod) with(args ...string) *pod {
	p.args = append(p.args, args...)
	return p
}

// verify runs the command in the container.
func (p *pod) verify() (code int, stdout, stderr string) {
	p.t.Helper()
	for name, value := range p.env {
		p.t.Setenv(name, value)
	}
	args := []string{
		"verify", "--sysfs-root", p.path("sys"), "--dev-root", p.path("dev"), "--proc-root", p.path("proc"),
		"--pairs", p.path("run/tandem/pairs.json"),
	}
	return run(append(args, p.args...)...)
}

const (
	ociGPU0, ociVF0 = "0000:11:00.0", "0000:0c:00.1"
	ociGPU1, ociVF1 = "0000:2f:00.0", "0000:2a:00.1"
)

func TestVerify(t *testing.T) {
	onOCI := func(t *testing.T) *pod { return newPod(t, "oci-mi300x-derived", 1) }
	pairs := func(p *pod, text string) *pod {
		p.file("run/tandem/pairs.json", text)
		return p
	}
	env := func(p *pod, name, value string) *pod {
		p.env[name] = value
		return p
	}
	var all strings.Builder
	var shown colours
	tests := []struct {
		name string
		pod  func(t *testing.T) *pod
	}{
		{"1+1", func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0).vfs(ociVF0) }},
		{"2+2", func(t *testing.T) *pod {
			return onOCI(t).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1).with("--gpus=2", "--vfs=2", "--in-order")
		}},
		{"no VF", func(t *testing.T) *pod { return newPod(t, "nv-a100pcie-cx6dx-vf-partial", 0).nvidia(0) }},
		{"no VF for traffic",
			func(t *testing.T) *pod {
				return newPod(t, "nv-a100pcie-cx6dx-vf-partial", 0).nvidia(0).with("--traffic")
			}},
		{"other switch", func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0).vfs(ociVF1) }},
		{"other switch, accepted",
			func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0).vfs(ociVF1).with("--within=NODE") }},
		{"one of two far",
			func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0, ociGPU1).vfs("0000:41:00.1", ociVF0) }},
		{"crossed", func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0, ociGPU1).vfs(ociVF1, ociVF0) }},
		{"crossed, order wanted", func(t *testing.T) *pod {
			return onOCI(t).amd(ociGPU0, ociGPU1).vfs(ociVF1, ociVF0).with("--in-order")
		}},
		{"too few", func(t *testing.T) *pod {
			return onOCI(t).amd(ociGPU0).vfs(ociVF0).with("--gpus=2", "--vfs=2")
		}},
		{"no GPU", func(t *testing.T) *pod { return onOCI(t).vfs(ociVF0) }},
		{"no node of ROCm's", func(t *testing.T) *pod {
			p := onOCI(t).amd(ociGPU0).vfs(ociVF0)
			if err := os.Remove(p.path("dev/kfd")); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"no RDMA node", func(t *testing.T) *pod { return env(onOCI(t).amd(ociGPU0), "PCIDEVICE_X", ociVF0) }},
		{"no such VF", func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0).vfs("0000:ee:00.1", ociVF0) }},
		{"no address", func(t *testing.T) *pod { return onOCI(t).amd(ociGPU0).vfs("mlx5_core.sf.4", ociVF0) }},
		{"same list twice",
			func(t *testing.T) *pod { return env(onOCI(t).amd(ociGPU0).vfs(ociVF0), "PCIDEVICE_ALIAS", ociVF0) }},
		{"PFs of their own", func(t *testing.T) *pod {
			p := newPod(t, "oci-mi300x-derived", 0).amd(ociGPU0, ociGPU1).vfs(ociPF0, ociPF1)
			return pairs(p.with("--vfs=2", "--in-order"), told(ociGPU0, ociGPU0, ociPF0, "PIX"))
		}},
		{"a PF on another switch",
			func(t *testing.T) *pod { return newPod(t, "oci-mi300x-derived", 0).amd(ociGPU0).vfs(ociPF1) }},
		{"a NIC of the other CPU",
			func(t *testing.T) *pod { return newPod(t, "nv-vera-derived", 0).nvidia(0).vfs("0010:03:00.0") }},
		{"an HCA for two GPUs", func(t *testing.T) *pod {
			return newPod(t, "amd-mi250-16gcd-8nic", 0).amd("0000:4e:00.0", "0000:51:00.0").
				vfs("0000:4b:00.0", "0000:4b:00.0").with("--gpus=2", "--vfs=2", "--in-order")
		}},
		{"partitions", func(t *testing.T) *pod {
			p := newPod(t, "amd-mi300x-smc-thor2-cpx-derived", 1)
			p.file("dev/dri/"+renderNode(t, p, "amdgpu_xcp_1"), "")
			return p.amd().vfs("0000:06:00.1")
		}},

		{"pairs.json agrees", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), told(ociGPU0, ociGPU0, ociVF0, "PIX"))
		}},
		{"pairs.json tells another distance", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF1).with("--within=SYS"), told(ociGPU0, ociGPU0, ociVF1, "PIX"))
		}},
		{"pairs.json with a GPU of another container", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), told(ociGPU1, ociGPU1, ociVF0, "NODE"))
		}},
		{"pairs.json with a VF of another container", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), told(ociGPU0, ociGPU0, ociVF1, "NODE"))
		}},
		{"pairs.json without GPUs", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0),
				`{"version":1,"pairs":[{"gpu":null,"vf":{"id":"0000:0c:00.1","address":"0000:0c:00.1"}}]}`)
		}},
		{"pairs.json broken", func(t *testing.T) *pod { return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), `[`) }},
		{"pairs.json of a later version", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), `{"version":2,"pairs":[]}`)
		}},
		{"pairs.json without pairs", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), `{"version":1}`)
		}},
		{"pairs.json with no pair", func(t *testing.T) *pod {
			return pairs(onOCI(t).amd(ociGPU0).vfs(ociVF0), `{"version":1,"pairs":[]}`)
		}},
		{"misspelt distance", func(t *testing.T) *pod {
			return onOCI(t).amd(ociGPU0).vfs(ociVF1).with("--within=PHBx")
		}},

		{"NVIDIA by node", func(t *testing.T) *pod {
			return env(newPod(t, "nv-h800-8x8", 1).nvidia(0), "NVIDIA_VISIBLE_DEVICES", "all").vfs("0000:0e:00.1")
		}},
		{"NVIDIA by UUID", func(t *testing.T) *pod {
			return pairs(env(newPod(t, "nv-h800-8x8", 1).nvidia(0, 1, 2), "NVIDIA_VISIBLE_DEVICES",
				"GPU-1,GPU-2").vfs("0000:35:00.1", "0000:47:00.1").with("--gpus=2"),
				told("GPU-1", "0000:34:00.0", "0000:35:00.1", "PIX"))
		}},
		{"NVIDIA by UUID, without the nodes", func(t *testing.T) *pod {
			return env(newPod(t, "nv-h800-8x8", 1).nvidia(2), "NVIDIA_VISIBLE_DEVICES",
				"GPU-1,GPU-2").vfs("0000:35:00.1", "0000:47:00.1")
		}},
		{"NVIDIA without the node of unified memory", func(t *testing.T) *pod {
			p := env(newPod(t, "nv-h800-8x8", 1).nvidia(0), "NVIDIA_VISIBLE_DEVICES", "all").vfs("0000:0e:00.1")
			if err := os.Remove(p.path("dev/nvidia-uvm")); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{"NVIDIA by wrong UUID", func(t *testing.T) *pod {
			return env(newPod(t, "nv-h800-8x8", 1).nvidia(0), "NVIDIA_VISIBLE_DEVICES",
				"GPU-0,GPU-9").vfs("0000:0e:00.1")
		}},
		{"NVIDIA without its files", func(t *testing.T) *pod {
			p := newPod(t, "nv-h800-8x8", 1)
			p.file("dev/nvidia3", "")
			return p.vfs("0000:0e:00.1").with("--gpus=0")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := test.pod(t)
			code, stdout, stderr := p.with("--color=always").verify()
			stdout = shown.strip(stdout)
			stderr = strings.NewReplacer(p.path("dev"), "DEV", p.path("proc"), "PROC", p.path("run/tandem/pairs.json"),
				"PAIRS").Replace(stderr)
			fmt.Fprintf(&all, "== %s: exit code %d\n%s%s\n", test.name, code, stdout, stderr)
		})
	}
	if strings.Count(all.String(), "== ") == len(tests) { // else -run has left some out
		golden.Check(t, "testdata/verify.txt", all.String())
		shown.check(t, "green PIX, green verified, red not verified, yellow NODE, yellow SYS")
	}
}

// told returns a pairs.json in tandem-rdma's format.
func told(id, gpu, vf, distance string) string {
	return fmt.Sprintf(`{"version":1,"pairs":[{"gpu":{"id":%q,"address":%q,"resource":"x/gpu"},`+
		`"vf":{"id":%q,"address":%[3]q,"resource":"x/vf","rdma":"mlx5_8"},"distance":%[4]q,"bridges":3,"switch":"0000:08:00.0"}]}`,
		id, gpu, vf, distance)
}

// renderNode returns the render node of a partition.
func renderNode(t *testing.T, p *pod, partition string) string {
	t.Helper()
	nodes, err := filepath.Glob(p.path("sys/devices/platform/" + partition + "/drm/renderD*"))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%s has the render nodes %q: %v", partition, nodes, err)
	}
	return filepath.Base(nodes[0])
}

func TestVerifyJSON(t *testing.T) {
	p := newPod(t, oci, 1).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1)
	_, stdout, _ := p.with("-o", "json").verify()
	golden.Check(t, "testdata/verify.json", stdout)
}
