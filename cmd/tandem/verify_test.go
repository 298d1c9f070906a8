// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
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

const noVF = "the container has no VF: no environment variable PCIDEVICE_* names one; request a resource of VFs " +
	"under limits, such as tandem.dev/rdma_vf: 1 (tandem status on the node lists the names); a shell may " +
	"drop names with a hyphen: run tandem verify without one"

func TestVerify(t *testing.T) {
	oci := func(t *testing.T) *pod { return newPod(t, "oci-mi300x-derived", 1) }
	pairs := func(p *pod, text string) *pod {
		p.file("run/tandem/pairs.json", text)
		return p
	}
	env := func(p *pod, name, value string) *pod {
		p.env[name] = value
		return p
	}
	for _, test := range []struct {
		name string
		pod  func(t *testing.T) *pod
		want string // of standard error; "" for verified
	}{
		{"1+1", func(t *testing.T) *pod { return oci(t).amd(ociGPU0).vfs(ociVF0) }, ""},
		{"2+2", func(t *testing.T) *pod {
			return oci(t).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1).with("--gpus=2", "--vfs=2", "--in-order")
		}, ""},
		{"no VF", func(t *testing.T) *pod { return newPod(t, "nv-a100pcie-cx6dx-vf-partial", 0).nvidia(0) },
			noVF},
		{"no VF for traffic",
			func(t *testing.T) *pod {
				return newPod(t, "nv-a100pcie-cx6dx-vf-partial", 0).nvidia(0).with("--traffic")
			},
			noVF},
		{"other switch", func(t *testing.T) *pod { return oci(t).amd(ociGPU0).vfs(ociVF1) },
			"GPU 0000:11:00.0 and VF 0000:2a:00.1 are NODE apart, farther than PXB"},
		{"other switch, accepted",
			func(t *testing.T) *pod { return oci(t).amd(ociGPU0).vfs(ociVF1).with("--within=NODE") }, ""},
		{"one of two far",
			func(t *testing.T) *pod { return oci(t).amd(ociGPU0, ociGPU1).vfs("0000:41:00.1", ociVF0) },
			"GPU 0000:2f:00.0 and VF 0000:41:00.1 are NODE apart, farther than PXB"},
		{"crossed", func(t *testing.T) *pod { return oci(t).amd(ociGPU0, ociGPU1).vfs(ociVF1, ociVF0) }, ""},
		{"crossed, order wanted", func(t *testing.T) *pod {
			return oci(t).amd(ociGPU0, ociGPU1).vfs(ociVF1, ociVF0).with("--in-order")
		}, "the i-th VF does not pair with the i-th GPU: compare the two lists"},
		{"too few", func(t *testing.T) *pod { return oci(t).amd(ociGPU0).vfs(ociVF0).with("--gpus=2", "--vfs=2") },
			"the container has 1 GPU instead of 2; the container has 1 VF instead of 2"},
		{"no GPU", func(t *testing.T) *pod { return oci(t).vfs(ociVF0) },
			"the container has no GPU: no device node of one is in DEV"},
		{"no node of ROCm's", func(t *testing.T) *pod {
			p := oci(t).amd(ociGPU0).vfs(ociVF0)
			if err := os.Remove(p.path("dev/kfd")); err != nil {
				t.Fatal(err)
			}
			return p
		}, "GPU 0000:11:00.0 is of no use to a program without the device node /dev/kfd, " +
			"and it is not in the container"},
		{"no RDMA node", func(t *testing.T) *pod { return env(oci(t).amd(ociGPU0), "PCIDEVICE_X", ociVF0) },
			"VF 0000:0c:00.1 has the RDMA device node /dev/infiniband/uverbs8, and it is not in the container"},
		{"no such VF", func(t *testing.T) *pod { return oci(t).amd(ociGPU0).vfs("0000:ee:00.1", ociVF0) },
			"PCIDEVICE_TANDEM_DEV_RDMA_VF names 0000:ee:00.1, and this machine has no such PCI function"},
		{"no address", func(t *testing.T) *pod { return oci(t).amd(ociGPU0).vfs("mlx5_core.sf.4", ociVF0) },
			`PCIDEVICE_TANDEM_DEV_RDMA_VF names "mlx5_core.sf.4", which is no PCI address`},
		{"same list twice",
			func(t *testing.T) *pod { return env(oci(t).amd(ociGPU0).vfs(ociVF0), "PCIDEVICE_ALIAS", ociVF0) }, ""},
		{"PFs of their own", func(t *testing.T) *pod {
			p := newPod(t, "oci-mi300x-derived", 0).amd(ociGPU0, ociGPU1).vfs(ociPF0, ociPF1)
			return pairs(p.with("--vfs=2", "--in-order"), told(ociGPU0, ociGPU0, ociPF0, "PIX"))
		}, ""},
		{"a PF on another switch",
			func(t *testing.T) *pod { return newPod(t, "oci-mi300x-derived", 0).amd(ociGPU0).vfs(ociPF1) },
			"GPU 0000:11:00.0 and VF 0000:2a:00.0 are NODE apart, farther than PXB"},
		{"a NIC of the other CPU",
			func(t *testing.T) *pod { return newPod(t, "nv-vera-derived", 0).nvidia(0).vfs("0010:03:00.0") },
			"GPU 0008:01:00.0 and VF 0010:03:00.0 are SYS apart, farther than C2C"},
		{"an HCA for two GPUs", func(t *testing.T) *pod {
			return newPod(t, "amd-mi250-16gcd-8nic", 0).amd("0000:4e:00.0", "0000:51:00.0").
				vfs("0000:4b:00.0", "0000:4b:00.0").with("--gpus=2", "--vfs=2", "--in-order")
		}, ""},
		{"partitions", func(t *testing.T) *pod {
			p := newPod(t, "amd-mi300x-smc-thor2-cpx-derived", 1)
			p.file("dev/dri/"+renderNode(t, p, "amdgpu_xcp_1"), "")
			return p.amd().vfs("0000:06:00.1")
		}, ""},

		{"pairs.json agrees", func(t *testing.T) *pod {
			return pairs(oci(t).amd(ociGPU0).vfs(ociVF0), told(ociGPU0, ociGPU0, ociVF0, "PIX"))
		}, ""},
		{"pairs.json tells another distance", func(t *testing.T) *pod {
			return pairs(oci(t).amd(ociGPU0).vfs(ociVF1).with("--within=SYS"), told(ociGPU0, ociGPU0, ociVF1, "PIX"))
		}, "PAIRS tells that GPU 0000:11:00.0 and VF 0000:2a:00.1 are PIX apart, and they are NODE"},
		{"pairs.json with a GPU of another container", func(t *testing.T) *pod {
			return pairs(oci(t).amd(ociGPU0).vfs(ociVF0), told(ociGPU1, ociGPU1, ociVF0, "NODE"))
		}, `PAIRS names the GPU 0000:2f:00.0, and the container does not have it`},
		{"pairs.json with a VF of another container", func(t *testing.T) *pod {
			return pairs(oci(t).amd(ociGPU0).vfs(ociVF0), told(ociGPU0, ociGPU0, ociVF1, "NODE"))
		}, `PAIRS names the VF 0000:2a:00.1, and the container does not have it`},
		{"pairs.json without GPUs", func(t *testing.T) *pod {
			return pairs(oci(t).amd(ociGPU0).vfs(ociVF0),
				`{"version":1,"pairs":[{"gpu":null,"vf":{"id":"0000:0c:00.1","address":"0000:0c:00.1"}}]}`)
		}, ""},
		{"pairs.json broken", func(t *testing.T) *pod { return pairs(oci(t).amd(ociGPU0).vfs(ociVF0), `[`) },
			"parse pairs in PAIRS: unexpected end of JSON input"},

		{"NVIDIA by node", func(t *testing.T) *pod {
			return env(newPod(t, "nv-h800-8x8", 1).nvidia(0), "NVIDIA_VISIBLE_DEVICES", "all").vfs("0000:0e:00.1")
		}, ""},
		{"NVIDIA by UUID", func(t *testing.T) *pod {
			return pairs(env(newPod(t, "nv-h800-8x8", 1).nvidia(0, 1, 2), "NVIDIA_VISIBLE_DEVICES",
				"GPU-1,GPU-2").vfs("0000:35:00.1", "0000:47:00.1").with("--gpus=2"),
				told("GPU-1", "0000:34:00.0", "0000:35:00.1", "PIX"))
		}, ""},
		{"NVIDIA by UUID, without the nodes", func(t *testing.T) *pod {
			return env(newPod(t, "nv-h800-8x8", 1).nvidia(2), "NVIDIA_VISIBLE_DEVICES",
				"GPU-1,GPU-2").vfs("0000:35:00.1", "0000:47:00.1")
		}, "GPU 0000:34:00.0 has the device node /dev/nvidia1, and it is not in the container: " +
			"the pod's RuntimeClass is not NVIDIA's, or the runtime has no CDI"},
		{"NVIDIA without the node of unified memory", func(t *testing.T) *pod {
			p := env(newPod(t, "nv-h800-8x8", 1).nvidia(0), "NVIDIA_VISIBLE_DEVICES", "all").vfs("0000:0e:00.1")
			if err := os.Remove(p.path("dev/nvidia-uvm")); err != nil {
				t.Fatal(err)
			}
			return p
		}, "CUDA opens the device node /dev/nvidia-uvm, and the container lacks the node"},
		{"NVIDIA by wrong UUID", func(t *testing.T) *pod {
			return env(newPod(t, "nv-h800-8x8", 1).nvidia(0), "NVIDIA_VISIBLE_DEVICES",
				"GPU-0,GPU-9").vfs("0000:0e:00.1")
		}, "NVIDIA_VISIBLE_DEVICES names GPU-9, and no GPU in PROC/driver/nvidia/gpus has that UUID"},
		{"NVIDIA without its files", func(t *testing.T) *pod {
			p := newPod(t, "nv-h800-8x8", 1)
			p.file("dev/nvidia3", "")
			return p.vfs("0000:0e:00.1").with("--gpus=0")
		},
			"DEV/nvidia3 is there, and no file PROC/driver/nvidia/gpus/*/information tells which PCI function it is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := test.pod(t)
			code, stdout, stderr := p.verify()
			stderr = strings.NewReplacer(p.path("dev"), "DEV", p.path("proc"), "PROC", p.path("run/tandem/pairs.json"),
				"PAIRS").Replace(stderr)
			wantCode, want := cli.ExitOK, ""
			if test.want != "" {
				wantCode, want = cli.ExitError, "tandem verify: "+test.want+"\n"
			}
			if code != wantCode {
				t.Errorf("exit code %d, want %d:\n%s", code, wantCode, stdout)
			}
			if diff := cmp.Diff(want, stderr); diff != "" {
				t.Errorf("standard error (-want +got):\n%s%s", diff, stdout)
			}
		})
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

func TestVerifyOutput(t *testing.T) {
	p := newPod(t, "oci-mi300x-derived", 1).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1)
	_, stdout, _ := p.verify()
	golden.Check(t, "testdata/verify-2x2.txt", stdout)

	_, stdout, _ = p.with("-o", "json").verify()
	var result map[string]any
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatal(err)
	}
	want := []string{"failures", "gpus", "inOrder", "pairs", "pairsFile", "version", "vfs"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(result))); diff != "" {
		t.Errorf("keys of the JSON (-want +got):\n%s", diff)
	}
	if result["inOrder"] != true || result["pairsFile"] != "absent" {
		t.Errorf("inOrder %v, pairsFile %v", result["inOrder"], result["pairsFile"])
	}
}
