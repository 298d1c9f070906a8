// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
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
}

func newPod(t *testing.T, machine string, perPF int) *pod {
	t.Helper()
	p := &pod{t: t, root: t.TempDir(), env: map[string]string{}}
	ready(t, os.Symlink(sysfs(t, machine, perPF), p.path("sys")))
	p.file("dev/null", "")
	return p
}

func (p *pod) path(name string) string { return filepath.Join(p.root, name) }

func (p *pod) file(name, content string) {
	p.t.Helper()
	ready(p.t, os.MkdirAll(filepath.Dir(p.path(name)), 0o755))
	ready(p.t, os.WriteFile(p.path(name), []byte(content), 0o644))
}

// amd gives the container the nodes of GPUs.
func (p *pod) amd(addresses ...string) *pod {
	p.t.Helper()
	p.file("dev/kfd", "")
	for _, address := range addresses {
		p.renderNode("sys/bus/pci/devices/" + address)
	}
	return p
}

// renderNode gives the container the render node of a device.
func (p *pod) renderNode(device string) {
	p.t.Helper()
	nodes, err := filepath.Glob(p.path(device + "/drm/renderD*"))
	if err != nil || len(nodes) != 1 {
		p.t.Fatalf("%s has the render nodes %q: %v", device, nodes, err)
	}
	p.file("dev/dri/"+filepath.Base(nodes[0]), "")
}

// nvidia adds the files of NVIDIA's driver, the i-th GPU with the minor i, and the device nodes of some GPUs.
func (p *pod) nvidia(given ...string) {
	p.t.Helper()
	tree, err := topology.Read(os.DirFS(p.path("sys")))
	ready(p.t, err)
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
		p.file("dev/nvidia"+i, "")
	}
	for _, shared := range []string{"nvidiactl", "nvidia-uvm"} {
		p.file("dev/"+shared, "")
	}
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

// verify runs tandem verify in the container, with the environment of the container alone.
func (p *pod) verify(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	p.t.Run("verify", func(t *testing.T) {
		for name, value := range p.env {
			t.Setenv(name, value)
		}
		code, stdout, stderr = run(append([]string{
			"verify", "--sysfs-root", p.path("sys"), "--dev-root", p.path("dev"), "--proc-root", p.path("proc"),
			"--pairs", p.path("run/tandem/pairs.json"),
		}, args...)...)
	})
	return code, stdout, stderr
}

const (
	ociGPU0, ociVF0 = "0000:11:00.0", "0000:0c:00.1"
	ociGPU1, ociVF1 = "0000:2f:00.0", "0000:2a:00.1"
)

// TestVerify: what tandem verify prints in containers of all kinds. A step "pod MACHINE/VFS" lays out one
// without devices.
func TestVerify(t *testing.T) {
	checkPodScript(t, "verify",
		"green PIX, green verified, red not verified, yellow NODE, yellow SYS, yellow UNK")
}

// TestVerifyTraffic: what tandem verify --traffic prints, with programs for perftest's.
func TestVerifyTraffic(t *testing.T) {
	p := checkPodScript(t, "verify-traffic",
		"green PIX, green ok, green verified, red not verified, red slow")
	p.step("perftest", "mlx5_8=192.40 mlx5_9=78.90")
	_, stdout, _ := p.verify("--traffic", "-o", "json")
	validate(t, "verify", stdout)
}

// checkPodScript runs a script; coloured are the words in colours. It returns the pod of the last step "pod".
func checkPodScript(t *testing.T, file, coloured string) (p *pod) {
	t.Helper()
	var shown colours
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			code, stdout, stderr = p.verify(append(args[2:], "--color=always")...)
			return code, shown.strip(stdout), strings.ReplaceAll(stderr, p.root, "ROOT")
		},
		Step: func(name, text string) {
			if name == "pod" {
				machine, perPF := machineOf(text)
				p = newPod(t, machine, perPF)
			} else {
				p.step(name, text)
			}
		},
		File: func(name string) string { return p.path(name) },
	}.Check(t, "testdata/scripts/"+file+".txt")
	shown.check(t, coloured)
	return p
}

// step changes the container.
func (p *pod) step(name, text string) {
	p.t.Helper()
	words := strings.Fields(text)
	switch name {
	case "amd": // GPU...: their nodes
		p.amd(words...)
	case "partition": // NAME: its node
		p.renderNode("sys/devices/platform/" + text)
	case "nvidia": // NUMBER...: the nodes of these GPUs, and the files of the driver
		p.nvidia(words...)
	case "vfs": // VF...: their nodes and variables
		p.vfs(words...)
	case "env": // NAME VALUE
		p.env[words[0]] = words[1]
	case "pairs": // GPU-ID GPU VF DISTANCE: pairs.json in tandem-rdma's format
		p.file("run/tandem/pairs.json", fmt.Sprintf(`{"version":1,"pairs":[{"gpu":{"id":%q,"address":%q,`+
			`"resource":"x/gpu"},"vf":{"id":%q,"address":%[3]q,"resource":"x/vf","rdma":"mlx5_8"},"distance":%[4]q,`+
			`"bridges":3,"switch":"0000:08:00.0"}]}`, words[0], words[1], words[2], words[3]))
	case "remove": // FILE
		ready(p.t, os.Remove(p.path(text)))
	case "without-vpd": // no rights to vpd files
		p.withoutVPD()
	case "perftest": // RDMA-DEVICE=GBPS...: programs with these results
		perftest(p.t, words)
	case "path": // nothing is installed
		p.t.Setenv("PATH", p.t.TempDir())
	default:
		p.t.Fatalf("no step is called %s", name)
	}
}

// withoutVPD gives the container a copy of the sysfs without vpd files.
func (p *pod) withoutVPD() {
	p.t.Helper()
	readable := p.path("sys")
	target, err := os.Readlink(readable)
	if err == nil {
		err = os.Remove(readable)
	}
	ready(p.t, err)
	if out, err := exec.Command("cp", "-al", target, readable).CombinedOutput(); err != nil {
		p.t.Fatalf("copy: %v %s", err, out)
	}
	files, err := filepath.Glob(p.path("sys/bus/pci/devices/*/vpd"))
	if err != nil || len(files) == 0 {
		p.t.Fatalf("vpd files %q: %v", files, err)
	}
	for _, file := range files {
		ready(p.t, os.Remove(file))
	}
}

// perftest puts programs into PATH that print a result at once: of bandwidth, DEVICE=GBPS by the RDMA device
// of the client, and of latency.
func perftest(t *testing.T, results []string) {
	t.Helper()
	dir := t.TempDir()
	var cases strings.Builder
	for _, one := range results {
		device, result, _ := strings.Cut(one, "=")
		cases.WriteString("*\"-d " + device + "\"*) gbps=" + result + " ;;\n")
	}
	for name, text := range map[string]string{
		"ib_write_bw": `echo "case $gbps: #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
echo "1048576 5000 0.00 $gbps 0.02"`,
		"ib_read_lat": `echo "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]"
echo "8 1000 1.5 9.5 2.25 2.5"`,
	} {
		script := "#!/bin/sh\ncase \"$*\" in --help) echo '--ib-dev --size --use_rocm'; exit 1 ;;\n" +
			cases.String() + "esac\n" + text + "\n"
		ready(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
