// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/golden"
)

// reported are nodes whose whole report is compared, as text and as JSON.
var reported = []struct {
	name, machine string
	perPF         int
	seed          func(s *sick)
}{
	{"healthy", "oci-mi300x-derived", 2, func(*sick) {}},
	{"kubelet as it comes", "amd-mi250-16gcd-8nic", 2, (*sick).unsettled},
	{"kubelet half settled", "amd-mi250-16gcd-8nic", 2, func(s *sick) {
		s.kubelet("restricted", "best-effort", "container", "pod", `"true"`, `"false"`, `"0"`, `"0-31"`)
	}},
	{"before the policy is set, hints of four VFs a NIC", "oci-mi300x-derived", 4, func(s *sick) {
		s.unsettled()
		s.excludes("false")
	}},
	{"before the policy is set, hints of one VF a NIC", "oci-mi300x-derived", 1, func(s *sick) {
		s.kubelet("restricted", "best-effort")
		s.excludes("false")
		s.with("--cpus", "113")
	}},
	{"hints of one VF a NIC", "oci-mi300x-derived", 1, func(s *sick) { s.excludes("false") }},
	{"a stock ConfigMap, before anything is changed", "oci-mi300x-derived", 4, func(s *sick) {
		s.unsettled()
		s.with("--config", "")
		s.mount("stock/volumes/kubernetes.io~configmap/config-volume", "false")
		s.mount("other/volumes/kubernetes.io~configmap/config-volume", "false")
		s.write("kubelet/pods/other/volumes/kubernetes.io~configmap/app/config.json", `{"replicas": 2}`)
	}},
	{"two stock ConfigMaps that differ", "oci-mi300x-derived", 4, func(s *sick) {
		s.unsettled()
		s.with("--config", "")
		s.mount("a/volumes/kubernetes.io~configmap/config-volume", "false")
		s.mount("b/volumes/kubernetes.io~configmap/config-volume", "true")
	}},
	{"VFs as a guess", "oci-mi300x-derived", 4, func(s *sick) { s.with("--config", "") }},
	{"more CPUs than a NUMA node has", "oci-mi300x-derived", 4, func(s *sick) { s.with("--cpus", "113") }},
	{"settings with which no kubelet starts", "nv-h100-oci", 1, func(s *sick) {
		s.write("kubelet/config.yaml", kubeletKind+`topologyManagerPolicy: strict
topologyManagerScope: node
topologyManagerPolicyOptions:
  prefer-closest-numa-nodes: "often"
  max-allowable-numa-nodes: "4"
  near: "true"
cpuManagerPolicy: dynamic
reservedSystemCPUs: "0,9999"
kubeReservedCgroup: /kube.slice
memoryManagerPolicy: Static
`)
	}},
	{"guest without switches", "nv-h200-vm-flat", 1, (*sick).unsettled},
	{"guest of a cloud", "nv-h100-aws-p5", 1, (*sick).unsettled},
	{"whole NICs of a cloud", "nv-h100-aws-p5", 0, func(s *sick) {
		s.unsettled()
		s.write("config.json", `{"resourceList": [{"resourcePrefix": "vpc.amazonaws.com", "resourceName": "efa",
			"selectors": {"vendors": ["1d0f"], "drivers": ["efa"], "isRdma": true}}]}`)
	}},
	{"VFs of some NICs", "nv-a100pcie-cx6dx-vf-partial", 0, (*sick).unsettled},
	{"no NIC", "amd-mi300x-cpx-kfd", 0, (*sick).unsettled},
	{"everything at once", "oci-mi300x-derived", 4, (*sick).ruined},
	{"mode of DRA", "oci-mi300x-derived", 4, func(s *sick) { s.enter(coordination.DRA, "run") }},
	{"both modes at once", "oci-mi300x-derived", 4, func(s *sick) {
		s.ruined()
		s.enter(coordination.DRA, "run")
		s.enter(coordination.DevicePlugin, "kubelet/device-plugins/tandem")
	}},
}

// mount mounts a ConfigMap with every VF, with this excludeTopology, as the kubelet does for a pod.
func (s *sick) mount(volume, excluded string) {
	s.t.Helper()
	s.excludes(excluded)
	content, err := os.ReadFile(s.path("config.json"))
	s.check(err)
	s.write("kubelet/pods/"+volume+"/..2026/config.json", string(content))
	s.symlink("kubelet/pods/"+volume+"/..2026/config.json", "kubelet/pods/"+volume+"/config.json")
}

// unsettled lays out a kubelet that nobody has configured.
func (s *sick) unsettled() {
	s.t.Helper()
	s.write("kubelet/config.yaml", kubeletKind)
	s.cpuState("none", "")
}

// enter puts the node into a mode: a daemon holds the lock of a run folder.
func (s *sick) enter(m coordination.Mode, runDir string) {
	s.t.Helper()
	s.check(os.MkdirAll(s.path(runDir), 0o700))
	lock, err := os.Create(coordination.ModeLock(s.path(runDir), m))
	s.check(err)
	s.t.Cleanup(func() { lock.Close() })
	s.check(syscall.Flock(int(lock.Fd()), syscall.LOCK_SH))
}

// ruined has a fault of every part of the node.
func (s *sick) ruined() {
	s.t.Helper()
	s.unsettled()
	s.noExclusion()
	s.write("kubelet/memory_manager_state", "{")
	s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"))
	s.write("proc/uptime", "7205.00 1.00\n")
	s.write(s.device(ociGPU0, "numa_node"), "-1\n")
	s.remove(s.device(ociGPU1, "driver"), s.device(ociVF0, "driver"), "dev/kfd", "dev/infiniband/rdma_cm")
	s.withoutVFs(ociPF1)
	s.write(s.device(ociPF0, "current_link_speed"), "16.0 GT/s PCIe\n")
	s.write(s.device(ociPF0, "max_link_speed"), "32.0 GT/s PCIe\n")
	s.write(s.device(ociPort0, "config"), acsConfig(0x001d))
	s.remove("kubelet/pod-resources")
	s.write("kubelet/device-plugins/kubelet_internal_checkpoint", `{"Data":{"PodDeviceEntries":[{"PodUID":"u",`+
		`"ContainerName":"c","ResourceName":"a/b","DeviceIDs":{"0":["0000:0c:00.7"]}}],"RegisteredDevices":{`+
		`"tandem.dev/rdma_vf":["`+ociVF0+`"],"intel.com/vf":["`+ociVF0+`"]}}}`)
	s.listen("kubelet/device-plugins/nvidia-gpu.sock")
	s.listen("kubelet/plugins_registry/tandem.dev_rdma_vf.sock")
	s.check(os.MkdirAll(s.path("run"), 0o700))
	s.write("run/coordination.sock", "")
	s.with("--refused-pods", "7")
}

// TestDoctorReports: what doctor prints of recorded machines, whole.
func TestDoctorReports(t *testing.T) {
	t.Parallel()
	var text, document strings.Builder
	for _, node := range reported {
		s := layOut(t, sysfs(t, node.machine, node.perPF))
		node.seed(s)
		_, asText, stderr := run(s.command()...)
		_, asJSON, alsoStderr := run(s.command("-o", "json")...)
		if stderr+alsoStderr != "" {
			t.Errorf("%s: standard error %q", node.name, stderr)
		}
		for out, printed := range map[*strings.Builder]string{&text: asText, &document: asJSON} {
			fmt.Fprintf(out, "== %s: %s\n%s\n", node.name, node.machine, s.anywhere(printed))
		}
	}
	golden.Check(t, "testdata/doctor-reports.txt", text.String())
	golden.Check(t, "testdata/doctor-reports.json.txt", document.String())
}

// anywhere is a text without the folder that the node is laid out in.
func (s *sick) anywhere(text string) string { return strings.ReplaceAll(text, s.root, "ROOT") }
