// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

// nodeName is the node's name in Kubernetes.
const nodeName = apiserver.Node

// node is a GPU server: its root folder has a recorded machine and a kubelet.
type node struct {
	root  string // short, for sockets below it
	image string // root of the image

	library   string        // of NVIDIA's driver; "" without it
	shown     *nvml.Machine // what it shows
	variables []string      // and by which variables, in every container
	extra     []mount       // in every container, beside what manifests say
	account   string        // folder of the service account

	kubelet *kubelettest.Kubelet
	watcher *kubelettest.Watcher
}

// newNode starts a kubelet on a machine with so many VFs on every NIC.
func newNode(t *testing.T, image, machine string, vfsPerPF int) *node {
	t.Helper()
	root, err := os.MkdirTemp("", "n")
	ready(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	n := &node{root: root, image: image, account: t.TempDir()}
	m, err := machines.Load(machine, vfsPerPF)
	ready(t, err)
	ready(t, os.CopyFS(n.path("sys"), m.FS()))
	for _, folder := range []string{"var/lib/kubelet/device-plugins", "var/log", "lib/modules", "dev/dri"} {
		ready(t, os.MkdirAll(n.path(folder), 0o755))
	}
	n.mknod(t, n.path("dev/null"), 1, 3)
	write(t, n.path("dev/infiniband/rdma_cm"), "")
	write(t, n.path("dev/kfd"), "")
	// The kubelet writes it when the first plugin lists devices.
	write(t, filepath.Join(n.kubeletDir(), "device-plugins/kubelet_internal_checkpoint"),
		`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":0}`)
	n.kubelet = kubelettest.Start(t, n.kubeletDir())
	n.watcher = kubelettest.StartWatcher(t, n.kubeletDir())
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.root, name) }

func (n *node) kubeletDir() string { return n.path("var/lib/kubelet") }

// installDriver puts NVIDIA's driver, or what stands in for it, where the GPU operator has its driver
// container put it.
func (n *node) installDriver(t *testing.T) {
	t.Helper()
	shown, err := nvml.Record(os.DirFS(n.path("sys")))
	ready(t, err)
	n.library, n.shown = nvml.Library(t), &shown
	ready(t, os.MkdirAll(n.path("nvml"), 0o755))
	ready(t, shown.Write(n.path("nvml/machine")))
	ready(t, syscall.Mkfifo(n.path("nvml/events"), 0o600))
	n.extra = []mount{{From: n.path("nvml"), To: "/nvml"}}
	n.variables = []string{nvml.FileVariable + "=/nvml/machine", nvml.EventsVariable + "=/nvml/events"}
	driver := n.path("run/nvidia/driver")
	write(t, filepath.Join(driver, "usr/lib64/libcuda.so.570.86.15"), "")
	execute(t, "cp", n.library, filepath.Join(driver, "usr/lib64"))
	nodes := map[string]int{"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}
	for minor := range shown.GPUs {
		nodes[fmt.Sprint("nvidia", minor)] = minor
	}
	for name, minor := range nodes { // on the host, and in the driver's container
		n.mknod(t, n.path("dev/"+name), 195, minor)
		n.mknod(t, filepath.Join(driver, "dev", name), 195, minor)
	}
	write(t, n.path("run/nvidia/validations/driver-ready"), "IS_HOST_DRIVER=false\n"+
		"NVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\n"+
		"NVIDIA_DEV_ROOT=/run/nvidia/driver\nDEV_ROOT_CTR_PATH=/driver-root\n")
}

// mknod makes a device node.
func (n *node) mknod(t *testing.T, file string, major, minor int) {
	t.Helper()
	ready(t, os.MkdirAll(filepath.Dir(file), 0o755))
	if err := syscall.Mknod(file, syscall.S_IFCHR|0o666, major<<8|minor); err != nil {
		t.Skipf("device nodes cannot be made here: %v", err)
	}
}

// joinCluster gives containers a service account for an API server.
func (n *node) joinCluster(t *testing.T, api *apiserver.Served) {
	t.Helper()
	write(t, filepath.Join(n.account, "ca.crt"), string(api.CA()))
	write(t, filepath.Join(n.account, "token"), "token")
	host, port := address(t, api.URL())
	n.variables = append(n.variables, "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
}

// run starts a pod.
func (n *node) run(t *testing.T, spec corev1.PodSpec) *pod {
	t.Helper()
	p := &pod{node: n, spec: spec, configMaps: configMaps(t)}
	p.start(t)
	return p
}

// meet waits until both resources take part in one coordination, in the folder that all deployers mount.
func (n *node) meet(t *testing.T, resources ...string) {
	t.Helper()
	if !comes(func() bool {
		answer, _ := coordination.Status(t.Context(), coordination.RunDir(n.kubeletDir()))
		there := 0
		for _, r := range answer.GetResources() {
			if slices.Contains(resources, r.GetName()) && r.GetConnected() {
				there++
			}
		}
		return there == len(resources)
	}) {
		t.Fatalf("%v do not meet", resources)
	}
}

// comes reports whether something becomes so in time.
func comes(so func() bool) bool {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); !so(); <-look.C {
		if time.Since(began) > kubelettest.Limit {
			return false
		}
	}
	return true
}

// registered returns the resource of the next plugin that registers with the kubelet.
func (n *node) registered(t *testing.T) string {
	t.Helper()
	return kubelettest.Await(t, n.kubelet.Plugins).Request.GetResourceName()
}

// card is the address of a GPU.
func (n *node) card(t *testing.T, id string) topology.Address {
	t.Helper()
	if n.shown != nil {
		for _, g := range n.shown.GPUs {
			if g.UUID == id {
				return g.Address
			}
		}
	}
	a, err := topology.ParseAddress(id)
	ready(t, err)
	return a
}

// write writes a file, and makes its folder.
func write(t *testing.T, file, content string) {
	t.Helper()
	ready(t, os.MkdirAll(filepath.Dir(file), 0o755))
	ready(t, os.WriteFile(file, []byte(content), 0o755))
}

// execute runs a program of this machine.
func execute(t *testing.T, program string, args ...string) {
	t.Helper()
	if output, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, output)
	}
}

// withNVML is a folder with programs that open NVIDIA's library, as make builds them. Nobody writes to it.
func withNVML(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(filepath.Dir(programs(t)), "nvml")
	if _, err := os.Stat(bin); err != nil {
		ready(t, build(bin, "1"))
	}
	return bin
}

// sharedRoot is the root of the image with the programs of a folder. Nobody writes to it.
func sharedRoot(t *testing.T, bin string) string {
	t.Helper()
	root := bin + ".root"
	if _, err := os.Stat(root); err != nil {
		unpackImage(t, bin, shell(t), root)
	}
	return root
}
