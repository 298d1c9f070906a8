// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/golden"
)

const (
	oci              = "oci-mi300x-derived"
	ociPF0, ociPort0 = "0000:0c:00.0", "0000:0b:00.0" // the downstream port right above
	ociPF1           = "0000:2a:00.0"
)

// faults are introduced one by one into a healthy node, oci with one VF per NIC.
var faults = []struct {
	name string
	seed func(s *sick)
}{
	{"policy none", func(s *sick) {
		s.kubelet("topologyManagerPolicy: restricted", "topologyManagerPolicy: none")
	}},
	{"policy not set", func(s *sick) { s.kubelet("topologyManagerPolicy: restricted\n", "") }},
	{"policy best-effort", func(s *sick) { s.kubelet("restricted", "best-effort") }},
	{"policy single-numa-node", func(s *sick) { s.kubelet("restricted", "single-numa-node") }},
	{"policy misspelt", func(s *sick) { s.kubelet("restricted", "strict") }},
	{"policy by the kubelet's flag", func(s *sick) {
		s.process("7", "/usr/bin/kubelet", "--topology_manager_policy=none", "--v", "2",
			"--config="+s.path("kubelet/config.yaml"))
	}},
	{"policy in a drop-in", func(s *sick) {
		s.write("kubelet.d/10-base.conf", kubeletKind+"topologyManagerPolicy: restricted\n")
		s.write("kubelet.d/90-cloud.conf", kubeletKind+"topologyManagerPolicy: best-effort\n")
		s.with("--kubelet-config-dir", s.path("kubelet.d"))
	}},
	{"scope pod", func(s *sick) { s.kubelet("Scope: container", "Scope: pod") }},
	{"no configuration", func(s *sick) { s.remove("kubelet/config.yaml") }},
	{"policy in a drop-in of a folder below", func(s *sick) {
		s.write("kubelet.d/90/cloud.conf", kubeletKind+"topologyManagerPolicy: best-effort\n")
		s.with("--kubelet-config-dir", s.path("kubelet.d"))
	}},
	{"somebody else's configuration", func(s *sick) {
		s.write("kubelet/config.yaml",
			"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n")
	}},
	{"broken configuration", func(s *sick) { s.write("kubelet/config.yaml", "topologyManagerPolicy: [") }},
	{"CPUs of a NUMA node unknown", func(s *sick) { s.write("sys/devices/system/node/node0/cpulist", "many") }},
	{"kubelets of two", func(s *sick) {
		s.process("7", "kubelet")
		s.process("8", "kubelet", "--config=/etc/other.yaml")
	}},
	{"kubelet of a user", func(s *sick) {
		s.process("7", "kubelet", "--topology-manager-policy=none")
		s.write("proc/7/status", "Name:\tkubelet\\nUid:\t0\t0\t0\t0\nUid:\t65534\t65534\t65534\t65534\n")
	}},
	{"kubelet in a container", func(s *sick) {
		s.process("7", "kubelet", "--topology-manager-policy=none")
		s.namespace("proc/7", "mnt:[2]")
	}},
	{"configuration changed, kubelet not restarted", func(s *sick) {
		s.process("7", "kubelet", "--config", s.path("kubelet/config.yaml"))
		s.write("proc/uptime", "7205.00 1.00\n") // uptime of two hours
	}},
	{"an option that there is not", func(s *sick) { s.kubelet("prefer-closest-numa-nodes", "prefer-near") }},
	{"reserved CPUs beside a cgroup", func(s *sick) {
		s.kubelet("reservedSystemCPUs: \"0\"\n", "reservedSystemCPUs: \"0\"\nsystemReservedCgroup: /system.slice\n")
	}},
	{"options by a flag, which replace all", func(s *sick) {
		s.write("sys/devices/system/node/online", "0-9\n")
		s.kubelet("prefer-closest-numa-nodes: \"true\"", "max-allowable-numa-nodes: \"16\"")
		s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"),
			"--topology-manager-policy-options=prefer-closest-numa-nodes=true")
	}},
	{"ten NUMA nodes", func(s *sick) { s.write("sys/devices/system/node/online", "0-9\n") }},

	{"CPU manager none", func(s *sick) {
		s.kubelet("cpuManagerPolicy: static", "cpuManagerPolicy: none")
		s.cpuState("none", "")
	}},
	{"no reserved CPUs", func(s *sick) { s.kubelet("reservedSystemCPUs: \"0\"\n", "") }},
	{"reserved CPUs that are not there", func(s *sick) {
		s.kubelet(`"0"`, `"0,999"`)
		s.cpuState("static", s.allCPUs()+",999")
	}},
	{"a node's CPUs all reserved", func(s *sick) { s.kubelet(`"0"`, `"56-111,168-223"`) }},
	{"CPU state of another policy", func(s *sick) { s.cpuState("none", "") }},
	{"CPU state damaged", func(s *sick) { s.write("kubelet/cpu_manager_state", "{") }},
	{"CPU state of another layout", func(s *sick) {
		s.write("kubelet/cpu_manager_state", `{"policyName":"static","checksum":1}`)
	}},
	{"CPU state with other entries", func(s *sick) {
		s.write("kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-223","entries":[]}`)
	}},
	{"CPUs of a container unreadable", func(s *sick) {
		s.write("kubelet/cpu_manager_state",
			`{"policyName":"static","defaultCpuSet":"0-222","entries":{"uid":{"main":"x"}}}`)
	}},
	{"memory state of another layout", func(s *sick) {
		s.write("kubelet/memory_manager_state", `{"policyName":"None"}`)
	}},
	{"CPU state of fewer CPUs", func(s *sick) { s.cpuState("static", "0-7") }},
	{"reserved CPU given away", func(s *sick) {
		s.write("kubelet/cpu_manager_state",
			`{"policyName":"static","defaultCpuSet":"1-111","entries":{"uid":{"main":"0"}},"checksum":1}`)
	}},
	{"memory manager without reserved memory", func(s *sick) {
		s.kubelet("cpuManagerPolicy: static", "cpuManagerPolicy: static\nmemoryManagerPolicy: Static")
		s.remove("kubelet/memory_manager_state")
	}},
	{"memory state of another policy", func(s *sick) {
		s.write("kubelet/memory_manager_state", `{"policyName":"Static","machineState":{},"entries":{}}`)
	}},

	{"GPU without NUMA node", func(s *sick) { s.write(s.device(ociGPU0, "numa_node"), "-1\n") }},
	{"NIC without NUMA node", func(s *sick) { s.write(s.device(ociPF0, "numa_node"), "-1\n") }},
	{"GPU for virtual machines", func(s *sick) {
		s.remove(s.device(ociGPU0, "driver"))
		s.link("sys/bus/pci/drivers/vfio-pci", s.device(ociGPU0, "driver"))
	}},
	{"GPU without driver", func(s *sick) { s.remove(s.device(ociGPU1, "driver")) }},
	{"no VFs on one NIC", func(s *sick) { s.withoutVFs(ociPF0) }},
	{"SR-IOV off in one NIC", func(s *sick) {
		s.withoutVFs(ociPF0)
		s.write(s.device(ociPF0, "sriov_totalvfs"), "0\n")
	}},
	{"VF without driver", func(s *sick) { s.remove(s.device(ociVF0, "driver")) }},
	{"VF without RDMA", func(s *sick) {
		s.remove(s.device(ociVF0, "infiniband"), s.device(ociVF0, "infiniband_verbs"))
	}},
	{"NIC link slow", func(s *sick) {
		s.write(s.device(ociPF1, "current_link_speed"), "16.0 GT/s PCIe\n")
		s.write(s.device(ociPF1, "max_link_speed"), "32.0 GT/s PCIe\n")
	}},
	{"GPU link narrow", func(s *sick) {
		s.write(s.device(ociGPU1, "current_link_width"), "8\n")
		s.write(s.device(ociGPU1, "max_link_width"), "16\n")
	}},
	{"ACS redirects requests", func(s *sick) { s.write(s.device(ociPort0, "config"), acsConfig(0x001d)) }},
	{"ACS not readable", func(s *sick) { s.write(s.device(ociPort0, "config"), acsConfig(0)[:64]) }},
	{"no /dev/kfd", func(s *sick) { s.remove("dev/kfd") }},
	{"no render node", func(s *sick) { s.remove("dev/dri/renderD128") }},
	{"no uverbs node of a VF", func(s *sick) { s.remove("dev/infiniband/uverbs8") }},
	{"no rdma_cm", func(s *sick) { s.remove("dev/infiniband/rdma_cm") }},

	{"kubelet away", func(s *sick) { s.remove("kubelet/device-plugins/kubelet.sock") }},
	{"kubelet's socket left over", func(s *sick) {
		s.remove("kubelet/device-plugins/kubelet.sock")
		s.write("kubelet/device-plugins/kubelet.sock", "")
	}},
	{"no pod-resources", func(s *sick) { s.remove("kubelet/pod-resources") }},
	{"NVIDIA's plugin runs", func(s *sick) { s.listen("kubelet/device-plugins/nvidia-gpu.sock") }},
	{"AMD's plugin runs", func(s *sick) { s.listen("kubelet/device-plugins/amd.com_gpu") }},
	{"SR-IOV plugin runs", func(s *sick) {
		s.checkpoint(`{"tandem.dev/rdma_vf": ["` + ociVF0 + `"]}`)
		s.listen("kubelet/plugins_registry/tandem.dev_rdma_vf.sock")
	}},
	{"checkpoint damaged", func(s *sick) { s.write("kubelet/device-plugins/kubelet_internal_checkpoint", "{") }},
	{"claims of unknown devices", func(s *sick) { s.write("kubelet/plugins/tandem.dev/claims.json", "{") }},
	{"VF under two names", func(s *sick) {
		s.checkpoint(`{"tandem.dev/rdma_vf": ["` + ociVF0 + `"], "intel.com/vf": ["` + ociVF0 + `"]}`)
	}},
	{"VF of a pod gone", func(s *sick) {
		s.write("kubelet/device-plugins/kubelet_internal_checkpoint",
			`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"tandem.dev/rdma_vf","DeviceIDs":{"0":["0000:0c:00.7"]}}],"RegisteredDevices":{}}}`)
	}},
	{"run folder is a file", func(s *sick) { s.write("run", "") }},
	{"coordination socket is a file", func(s *sick) { s.write("run/coordination.sock", "") }},

	{"refused pods", func(s *sick) {
		s.pods.Store(&[]corev1.Pod{
			failed("team", "train-1", "TopologyAffinityError"), failed("team", "train-0", "TopologyAffinityError"),
			failed("team", "other", "UnexpectedAdmissionError"), {Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		})
	}},
	{"refused pods of the API server", func(s *sick) { s.with("--refused-pods", "7") }},

	{"daemons in two folders", func(s *sick) {
		s.remove("kubelet/pod-resources") // without a server
		runPlugins(s.t, s.path("run"))
		runPlugins(s.t, s.path("kubelet/device-plugins/tandem"))
	}},

	{"CPUs of another shape", func(s *sick) { s.with("--cpus", "2") }},

	{"kubelet without a process to see", func(s *sick) { s.remove("proc") }},
	{"kubelet without a process to see, and a named file", func(s *sick) {
		s.remove("proc")
		s.with("--kubelet-config", s.path("kubelet/config.yaml"))
	}},
	{"key in small letters", func(s *sick) { s.kubelet("topologyManagerPolicy", "topologymanagerpolicy") }},
	{"key with a capital", func(s *sick) { s.kubelet("topologyManagerPolicy:", "TopologyManagerPolicy:") }},
	{"key of the CPU manager", func(s *sick) { s.kubelet("cpuManagerPolicy", "cpumanagerpolicy") }},
	{"key of the reserved CPUs", func(s *sick) { s.kubelet("reservedSystemCPUs", "reservedSystemCpus") }},
	{"settings by flags", func(s *sick) { // no finding
		s.write("kubelet/config.yaml", kubeletKind+"topologyManagerPolicy: restricted\n"+
			"memoryManagerPolicy: Static\ncpuManagerPolicy: static\n"+
			"topologyManagerPolicyOptions: {max-allowable-numa-nodes: \"no\"}\n")
		s.write("kubelet/memory_manager_state", `{"policyName":"Static","machineState":{}}`)
		s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"), "--kube-reserved=cpu=2,memory=1Gi",
			"--system_reserved", "cpu=500m", "--reserved-memory=0:memory=1124Mi;1:memory=1Gi,hugepages-1Gi=2Gi",
			"--topology-manager-policy-options=prefer-closest-numa-nodes=true")
	}},
	// The kubelet satisfies the amount with CPU 0 and its sibling 112, and assigns CPU 1 to a container.
	{"CPUs reserved by amount", func(s *sick) { // no finding
		s.kubelet("reservedSystemCPUs: \"0\"", "kubeReserved: {cpu: \"2\"}")
		s.write("kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0,2-112,114-223",`+
			`"entries":{"uid":{"main":"1,113"}},"checksum":1}`)
	}},
	{"CPUs strictly reserved and shared", func(s *sick) { s.strictlyReserved() }},
	{"CPUs strictly reserved", func(s *sick) { // no finding
		s.strictlyReserved()
		s.cpuState("static", "1-223")
	}},

	{"refused pods unknown", func(s *sick) { s.remove("kubelet/pods-api") }},
	{"refused pods unknown, single-numa-node", func(s *sick) {
		s.remove("kubelet/pods-api")
		s.kubelet("restricted", "single-numa-node")
	}},
	{"refused pods unknown, best-effort refuses none", func(s *sick) {
		s.remove("kubelet/pods-api")
		s.kubelet("restricted", "best-effort")
	}},

	{"hints on two NUMA nodes, auto", func(s *sick) { s.excludes(`"auto"`) }},
	{"slow merge of hints", func(s *sick) { s.eightNodes(); s.excludes("false") }},
	{"slow merge of hints, auto", func(s *sick) { s.eightNodes(); s.excludes(`"auto"`) }},
	{"slow merge of hints, true", func(s *sick) { s.eightNodes(); s.excludes("true") }},
	{"slow merge of hints and memory", func(s *sick) {
		s.eightNodes()
		s.excludes("false")
		s.staticMemory()
	}},
	{"slow merge of memory, auto", func(s *sick) {
		s.eightNodes()
		s.excludes(`"auto"`)
		s.staticMemory()
	}},
	{"slow merge without configuration", func(s *sick) { s.eightNodes(); s.with("--config", "") }},

	// A coordinator or a kubelet that hangs stalls every pod start of the node.
	{"both sockets answer", func(s *sick) { s.serve(recordedNode{answer: onMachine(s.t, oci, 1)}, nil) }},
	{"coordinator hangs", func(s *sick) { s.serve(hungPlugins{}, nil) }},
	{"kubelet hangs", func(s *sick) { s.serve(recordedNode{answer: onMachine(s.t, oci, 1)}, hungKubelet{}) }},
}

// nodes are other nodes.
var nodes = []struct {
	name, machine string
	perPF         int
	seed          func(s *sick)
}{
	{"healthy", oci, 2, func(*sick) {}},
	{"kubelet as it comes", "amd-mi250-16gcd-8nic", 2, (*sick).unsettled},
	{"kubelet half settled", "amd-mi250-16gcd-8nic", 2, func(s *sick) {
		s.kubelet("restricted", "best-effort", "container", "pod", `"true"`, `"false"`, `"0"`, `"0-31"`)
	}},
	{"before the policy is set, hints of four VFs a NIC", oci, 4, func(s *sick) {
		s.unsettled()
		s.excludes("false")
	}},
	{"before the policy is set, hints of one VF a NIC", oci, 1, func(s *sick) {
		s.kubelet("restricted", "best-effort")
		s.excludes("false")
		s.with("--cpus", "113")
	}},
	{"hints of one VF a NIC", oci, 1, func(s *sick) { s.excludes("false") }},
	{"a stock ConfigMap, before anything is changed", oci, 4, func(s *sick) {
		s.unsettled()
		s.with("--config", "")
		s.mount("stock/volumes/kubernetes.io~configmap/config-volume", "false")
		s.mount("other/volumes/kubernetes.io~configmap/config-volume", "false")
		s.write("kubelet/pods/other/volumes/kubernetes.io~configmap/app/config.json", `{"replicas": 2}`)
	}},
	{"two stock ConfigMaps that differ", oci, 4, func(s *sick) {
		s.unsettled()
		s.with("--config", "")
		s.mount("a/volumes/kubernetes.io~configmap/config-volume", "false")
		s.mount("b/volumes/kubernetes.io~configmap/config-volume", "true")
	}},
	{"VFs as a guess", oci, 4, func(s *sick) { s.with("--config", "") }},
	{"more CPUs than a NUMA node has", oci, 4, func(s *sick) { s.with("--cpus", "113") }},
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
	{"everything at once", oci, 4, (*sick).ruined},
	{"mode of DRA", oci, 4, func(s *sick) { s.enter(coordination.DRA, "run") }},
	{"both modes at once", oci, 4, func(s *sick) {
		s.ruined()
		s.enter(coordination.DRA, "run")
		s.enter(coordination.DevicePlugin, "kubelet/device-plugins/tandem")
	}},
	{"healthy 16 GCDs", "amd-mi250-16gcd-8nic", 4, func(*sick) {}},
	{"healthy Thor 2", "amd-mi300x-smc-thor2", 4, func(*sick) {}},
	{"healthy H100", "nv-h100-oci", 4, func(*sick) {}},
	{"healthy H800", "nv-h800-8x8", 4, func(*sick) {}},
	{"guest without switches, all settings", "nv-h200-vm-flat", 1, func(*sick) {}},
	{"guest without switches, with a topology file", "nv-h200-vm-flat", 1, func(s *sick) {
		var file strings.Builder
		for i := range 8 {
			fmt.Fprintf(&file, `<pci busid="ffff:ff:%02x.0"><pci busid="0000:%02x:00.0"/><pci busid="0000:%02x:00.0"/></pci>`,
				i+1, i+0x05, i+0x0d)
		}
		s.write("topo.xml", `<system version="1"><cpu numaid="0">`+file.String()+`</cpu></system>`)
		s.with("--topology-file", s.path("topo.xml"))
	}},
	{"no switch with both", "nv-4xrtx6000ada-2cx7", 2, func(*sick) {}},
	{"no NIC with RDMA", "amd-mi300x-cpx-kfd", 0, func(s *sick) { s.with("--config", "") }},
	{"no VF selected", oci, 1, func(s *sick) {
		s.write("config.json", strings.Replace(everyVF, `"isRdma": true`, `"vendors": ["8086"]`, 1))
	}},
	{"hints of four VFs a NIC", oci, 4, (*sick).noExclusion},
	{"no VFs", oci, 0, func(*sick) {}},
	{"closest NUMA nodes not preferred", "amd-mi250-16gcd-8nic", 2, func(s *sick) {
		s.kubelet("  prefer-closest-numa-nodes: \"true\"\n", "", "topologyManagerPolicyOptions:\n", "")
	}},
	{"pool with VFs of few NICs", oci, 2, func(s *sick) {
		s.write("config.json", strings.Replace(everyVF, `"isRdma": true`,
			`"isRdma": true, "rootDevices": ["0000:0c:00.0#0-1", "0000:2a:00.0#0-1"]`, 1))
	}},
	{"some shapes with 4 CPUs", oci, 4, func(s *sick) { s.with("--cpus", "4") }},
	{"the most CPUs of these shapes", oci, 4, func(s *sick) { s.with("--cpus", "223") }},
	// Without a configuration the pools are those of the running tandem-rdma.
	{"running plugin without NUMA nodes", oci, 4, func(s *sick) { s.offer(noNode, false) }},
	{"running plugin with NUMA nodes", oci, 4, func(s *sick) { s.offer(socket, false) }},
	{"plugin away", oci, 4, func(s *sick) {
		s.offer(noNode, true)
		s.write(s.device(ociGPU0, "numa_node"), "-1\n")
	}},
	// The kubelet takes the VFs of a request from one pool: 8 GPUs with 8 VFs are admitted.
	{"pools apart", oci, 2, func(s *sick) {
		var pools []string
		for vf := 1; vf <= 2; vf++ {
			var addresses []string
			for _, nic := range []string{"0c", "2a", "41", "58", "86", "a5", "bd", "d5"} {
				addresses = append(addresses, fmt.Sprintf(`"0000:%s:00.%d"`, nic, vf))
			}
			pools = append(pools, fmt.Sprintf(`{"resourceName": "pool%d", "selectors": {"pciAddresses": [%s]}}`, vf,
				strings.Join(addresses, ",")))
		}
		s.write("config.json", `{"resourceList": [`+strings.Join(pools, ",")+`]}`)
	}},
	// The reasons against VFs precede the findings.
	{"pools that select few VFs", oci, 2, func(s *sick) {
		s.write("config.json", `{"resourceList": [
			{"resourceName": "few", "isRdma": true, "selectors": [
				{"rootDevices": ["0000:0c:00.0#0-1"]}, {"rootDevices": ["0000:2a:00.0"], "vendor": ["15b3"]}]},
			{"resourceName": "wrong", "selectors": {"vendors": ["0x15b3"], "isRdma": true}},
			{"resourceName": "none", "selectors": {"pfNames": ["ens9"]}},
			{"resourceName": "rest", "selectors": {"isRdma": true}}]}`)
		s.remove(s.device(ociVF1, "driver"))
		s.remove(s.device("0000:58:00.1", "infiniband"), s.device("0000:58:00.1", "infiniband_verbs"))
	}},
	{"pools of the shared plugin", oci, 2, func(s *sick) {
		s.write("config.json", `{"configList": [
			{"resourceName": "all", "rdmaHcaMax": 4, "selectors": {"vendors": ["15b3"], "linkTypes": ["infiniband"]}},
			{"resourceName": "one", "hcaMax": 4, "rdmaHcaMax": 4, "selectors": {"ifNames": ["ib0"], "devices": ["1"]}}]}`)
	}},
}

// TestDoctorReports: what doctor prints of each node.
func TestDoctorReports(t *testing.T) {
	t.Parallel()
	all := nodes
	for _, f := range faults {
		all = append(all, struct {
			name, machine string
			perPF         int
			seed          func(s *sick)
		}{f.name, oci, 1, f.seed})
	}
	reports := make([]string, len(all))
	var shown colours
	t.Cleanup(func() {
		if !slices.Contains(reports, "") { // else -run has left some out, or they have failed
			golden.Check(t, "testdata/doctor-reports.txt", strings.Join(reports, ""))
			shown.check(t, "green No problem, red ERROR, yellow UNKNOWN, yellow WARNING")
		}
	})
	for i, n := range all {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, n.machine, n.perPF))
			n.seed(s)
			code, stdout, stderr := run(s.command("--color=always")...)
			reports[i] = fmt.Sprintf("== %s, %s with %d VFs: exit code %d\n%s%s\n",
				n.name, n.machine, n.perPF, code, s.anywhere(shown.strip(stdout)), s.anywhere(stderr))
		})
	}
}

// TestDoctorDocument: findings of all kinds as JSON.
func TestDoctorDocument(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, oci, 4))
	s.ruined()
	_, stdout, _ := run(s.command("-o", "json")...)
	golden.Check(t, "testdata/doctor-report.json", s.anywhere(stdout))
}

// link makes a relative link between two places in the folder.
func (s *sick) link(target, name string) {
	s.t.Helper()
	s.write(target+"/uevent", "")
	s.symlink(target, name)
}

func (s *sick) strictlyReserved() {
	s.t.Helper()
	s.kubelet("reservedSystemCPUs: \"0\"\n",
		"reservedSystemCPUs: \"0\"\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n")
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
	lock, err := os.Create(s.path(runDir + "/mode-" + string(m) + ".lock"))
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

// anywhere is a text without the folder that the node is laid out in.
func (s *sick) anywhere(text string) string { return strings.ReplaceAll(text, s.root, "ROOT") }

func check(t *testing.T, findings []doctor.Finding, want, about string) {
	t.Helper()
	var ids []string
	told := false
	for _, f := range findings {
		ids = append(ids, f.ID)
		told = told || strings.Contains(f.Summary+strings.Join(f.Evidence, "\n"), about)
		if f.Summary == "" || len(f.Evidence) == 0 || f.Why == "" || len(f.Fix) == 0 ||
			!strings.HasSuffix(f.Summary, ".") {
			t.Errorf("the finding is not complete: %+v", f)
		}
	}
	slices.Sort(ids)
	if diff := cmp.Diff(strings.Fields(want), slices.Compact(ids)); diff != "" {
		t.Errorf("findings (-want +got):\n%s%+v", diff, findings)
	}
	if !told {
		t.Errorf("nothing is said about %q: %+v", about, findings)
	}
}

// TestDoctorOnMisspeltDriver: errors about missing VFs first correct the driver, with and without VFs.
func TestDoctorOnMisspeltDriver(t *testing.T) {
	t.Parallel()
	for perPF, want := range map[int][]string{0: {"no-vf", "no-vfs"}, 1: {"no-vf"}} {
		s := layOut(t, sysfs(t, "oci-mi300x-derived", perPF))
		s.write("config.json", strings.Replace(everyVF, `"isRdma": true`, `"drivers": ["mlx5-core"]`, 1))
		var errors []string
		for _, f := range s.findings() {
			if f.Severity != doctor.Error {
				continue
			}
			errors = append(errors, f.ID)
			const fix = "correct the driver in config.json: mlx5-core (did you mean mlx5_core?)"
			if f.Fix[0] != fix {
				t.Errorf("%s with %d VFs per PF: the first fix is %q, want %q", f.ID, perPF, f.Fix[0], fix)
			}
		}
		if !slices.Equal(errors, want) {
			t.Errorf("%d VFs per PF: the errors are %q, want %q", perPF, errors, want)
		}
	}
}
