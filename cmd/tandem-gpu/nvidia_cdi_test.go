// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/test/programs"
)

// TestNodesOfCDI: a container gets the device nodes of the CDI specification. Therefore a GPU is healthy only
// while the specification has its node. Here device nodes come after the start, as without nvidia-modprobe.
func TestNodesOfCDI(t *testing.T) {
	n := nvidiaNode(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	installLibrary(t, n)
	_, _, plugin := n.offers(t, nil, "--device-list-strategy=cdi-cri")
	healthy := n.healthyWithNodes(t, kubelettest.Await(t, plugin.Lists))
	makeDeviceNodes(t, n)
	for healthy < len(n.Machine.GPUs) {
		healthy = n.healthyWithNodes(t, kubelettest.Await(t, plugin.Lists))
	}
}

// healthyWithNodes returns the number of healthy GPUs, and fails the test if the specification lacks the node
// of one of them.
func (n *node) healthyWithNodes(t *testing.T, devices []*v1beta1.Device) (healthy int) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.dir, "cdi/k8s.device-plugin.nvidia.com-gpu.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without a node there may be no specification
		t.Fatal(err)
	}
	var lacking []int
	for _, gpu := range n.Machine.GPUs {
		if !slices.ContainsFunc(devices, func(d *v1beta1.Device) bool {
			return d.GetID() == gpu.UUID && d.GetHealth() == v1beta1.Healthy
		}) {
			continue
		}
		healthy++
		if !strings.Contains(string(content), fmt.Sprintf(`"path":"/dev/nvidia%d"`, gpu.Minor)) {
			lacking = append(lacking, gpu.Minor)
		}
	}
	if len(lacking) > 0 {
		t.Fatalf("the specification has no nodes of the healthy GPUs %v", lacking)
	}
	return healthy
}

// entrypoint is the NVIDIA GPU operator's script for the plugin's container
// (assets/state-device-plugin/0400_configmap.yaml in NVIDIA/gpu-operator): it waits for the driver's
// validation, reads the driver's paths, looks for modules, and executes the plugin.
const entrypoint = `
until [ -f "$VALIDATION" ]; do sleep 1; done
set -o allexport
cat "$VALIDATION"
. "$VALIDATION"
if cat /proc/modules | grep -q "^nothing_of_this_name "; then export MOFED_ENABLED=true; fi
exec nvidia-device-plugin "$@"
`

// TestUnderTheOperator starts the plugin as the GPU operator and the chart do: by a script, without any
// capability.
func TestUnderTheOperator(t *testing.T) {
	t.Attr("parity", "nvidia/securitycontext")
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("no setpriv to drop capabilities with (package util-linux)")
	}
	n := nvidiaNode(t, "nv-h100-oci", nil)
	validation := filepath.Join(n.dir, "driver-ready")
	write(t, validation,
		"DRIVER_ROOT_CTR_PATH="+n.Root+"\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nNVIDIA_DEV_ROOT=/\n")
	dir := program(t)
	script := filepath.Join(n.dir, "entrypoint.sh")
	write(t, script, entrypoint)
	args := []string{"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "/bin/sh", script}
	for _, arg := range n.args {
		if !strings.HasPrefix(arg, "--driver-root-ctr-path") { // the script passes this flag
			args = append(args, arg)
		}
	}
	kubelet := kubelettest.Start(t, n.dir)
	command := exec.Command(setpriv, args...)
	command.Env = append(os.Environ(),
		"VALIDATION="+validation, "PATH="+dir+":"+os.Getenv("PATH"), "PASS_DEVICE_SPECS=true",
		"FAIL_ON_INIT_ERROR=true", "NVIDIA_MIG_MONITOR_DEVICES=all",
		"KUBELET_SOCKET="+filepath.Join(kubelettest.Plugins(n.dir), "kubelet.sock"),
		"DEVICE_LIST_STRATEGY=volume-mounts", "MIG_STRATEGY=single")
	programs.Start(t, command)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	devices := await(t, plugin, "8")
	answer, err := plugin.Allocate(t.Context(), devices[0].GetID())
	if err != nil || len(answer.GetMounts()) != 1 || len(answer.GetDevices()) == 0 {
		t.Errorf("answer %v, %v", answer, err)
	}
}

// TestOperatorWithCDI: the operator's default configuration of its plugin (transformDevicePluginCtrForCDI in
// controllers/object_controls.go there) gives a specification that is valid on the node: with the driver
// container's paths of the driver's files, and the toolkit container's hooks.
func TestOperatorWithCDI(t *testing.T) {
	t.Attr("parity", "deployer/nvidia-gpu-operator")
	n := nvidiaNode(t, "nv-h100-oci", nil)
	installCDI(t, n)
	const hook = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
	kubelet := kubelettest.Start(t, n.dir)
	execute(t, gpus.StockNVIDIA, []string{
		"CDI_ENABLED=true", "DEVICE_LIST_STRATEGY=cdi-annotations,cdi-cri", "CDI_ANNOTATION_PREFIX=cdi.k8s.io/",
		"NVIDIA_CDI_HOOK_PATH=" + hook, "NVIDIA_DRIVER_ROOT=/run/nvidia/driver",
		"NVIDIA_DEV_ROOT=/run/nvidia/driver", "MIG_STRATEGY=single", "FAIL_ON_INIT_ERROR=true",
		"KUBELET_SOCKET=" + filepath.Join(kubelettest.Plugins(n.dir), "kubelet.sock"),
	}, n.args...)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	id := await(t, plugin, "8")[0].GetID()
	answer, err := plugin.Allocate(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := "k8s.device-plugin.nvidia.com/gpu=" + id
	if got := answer.GetCdiDevices(); len(got) != 1 || got[0].GetName() != want || len(answer.GetEnvs()) > 0 ||
		len(answer.GetAnnotations()) != 1 {
		t.Errorf("answer %v, want %s alone", answer, want)
	}
	content, err := os.ReadFile(filepath.Join(n.dir, "cdi/k8s.device-plugin.nvidia.com-gpu.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"path":"` + hook + `"`, `"hostPath":"/run/nvidia/driver/usr/lib64/libcuda.so.570.86.15"`,
		`"hostPath":"/run/nvidia/driver/dev/nvidia7"`, `"name":"` + id + `"`,
	} {
		if !strings.Contains(string(content), part) {
			t.Errorf("the specification lacks %s:\n%s", part, content)
		}
	}
}

// TestMIGThroughCDI makes NVIDIA's CDI library find the device nodes of MIG devices. The library reads the
// real /proc/driver, so the test mounts another folder there, in a mount namespace.
func TestMIGThroughCDI(t *testing.T) {
	t.Attr("parity", "nvidia/cdi-spec-file")
	n := nvidiaNode(t, "nv-h100-oci", func(m *nvml.Machine) { m.GPUs[0].Split(2, 2, 40320) })
	dir := program(t)
	const namespace = `mount --bind "$0" /proc/driver && exec "$@"`
	driver := filepath.Join(n.dir, "proc/driver")
	if output, err := exec.Command("unshare", "--mount", "sh", "-c", namespace, driver,
		"true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespace can be made here: %v: %s", err, output)
	}
	for _, file := range []string{"usr/lib64/libcuda.so.570.86.15", "dev/placeholder"} {
		write(t, filepath.Join(n.Root, file), "")
	}
	kubelet := kubelettest.Start(t, n.dir)
	nodes := filepath.Join(n.Root, "dev/nvidia-caps")
	if err := os.MkdirAll(nodes, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{
		"nvidia0", "nvidia1", "nvidia2", "nvidia3",
		"nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap4", "nvidia-caps/nvidia-cap5",
		"nvidia-caps/nvidia-cap6",
	} {
		if output, err := exec.Command("mknod", filepath.Join(n.Root, "dev", node), "c", "195",
			"0").CombinedOutput(); err != nil {
			t.Skipf("device nodes cannot be made here: %v: %s", err, output)
		}
	}
	args := append([]string{"--mount", "sh", "-c", namespace, driver, filepath.Join(dir, "tandem-gpu")},
		n.tandem("--device-list-strategy=cdi-cri", "--mig-strategy=mixed")...)
	programs.Start(t, exec.Command("unshare", args...))
	kubelettest.Await(t, kubelet.Plugins)
	kubelettest.Await(t, kubelet.Plugins)
	content, err := os.ReadFile(filepath.Join(n.dir, "cdi/k8s.device-plugin.nvidia.com-gpu.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"name":"` + n.Machine.GPUs[0].Slices[1].UUID, `"path":"/dev/nvidia-caps/nvidia-cap5"`,
		`"name":"` + n.Machine.GPUs[1].UUID,
	} {
		if !strings.Contains(string(content), part) {
			t.Errorf("the specification lacks %s:\n%s", part, content)
		}
	}
}
