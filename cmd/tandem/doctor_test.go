// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/test/golden"
)

// TestDoctorIsSilent on healthy nodes: the recorded machines whose GPUs share switches with NICs that support
// VFs.
func TestDoctorIsSilent(t *testing.T) {
	t.Parallel()
	for _, machine := range []string{
		"oci-mi300x-derived", "amd-mi250-16gcd-8nic", "amd-mi300x-smc-thor2", "nv-h100-oci", "nv-h800-8x8",
	} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, machine, 4))
			code, stdout, stderr := run(s.command()...)
			if code != cli.ExitOK || stderr != "" ||
				stdout != "No problem prevents GPUs and VFs on the same switch on this node.\n" {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// TestDoctorTakesTopologyFile: a guest without visible switches is healthy with a topology file.
func TestDoctorTakesTopologyFile(t *testing.T) {
	t.Parallel()
	s := layOut(t, sysfs(t, "nv-h200-vm-flat", 1))
	var file strings.Builder
	file.WriteString(`<system version="1"><cpu numaid="0">`)
	for i := range 8 {
		fmt.Fprintf(&file,
			`<pci busid="ffff:ff:%02x.0"><pci busid="0000:%02x:00.0"/><pci busid="0000:%02x:00.0"/></pci>`, i+1,
			i+0x05, i+0x0d)
	}
	s.write("topo.xml", file.String()+`</cpu></system>`)
	check(t, s.findings(), "no-shared-switch", "No GPU shares a switch")
	s.with("--topology-file", s.path("topo.xml"))
	if findings := s.findings(); len(findings) > 0 {
		t.Errorf("with the file:\n%s", doctor.Report(findings))
	}
}

const (
	ociPF0, ociPort0 = "0000:0c:00.0", "0000:0b:00.0" // the downstream port right above
	ociPF1           = "0000:2a:00.0"
)

// faults are introduced one by one into a healthy node. Each must be the only finding.
var faults = []struct {
	name  string
	seed  func(s *sick)
	want  string // IDs of findings, sorted
	about string // in the evidence or the summary
}{
	{"policy none", func(s *sick) {
		s.kubelet("topologyManagerPolicy: restricted", "topologyManagerPolicy: none")
	}, "topology-policy", "topologyManagerPolicy: none"},
	{"policy not set", func(s *sick) { s.kubelet("topologyManagerPolicy: restricted\n", "") }, "topology-policy",
		"not set"},
	{"policy best-effort", func(s *sick) { s.kubelet("restricted", "best-effort") }, "topology-policy",
		"best-effort"},
	{"policy single-numa-node", func(s *sick) { s.kubelet("restricted", "single-numa-node") }, "topology-policy",
		"single-numa-node"},
	{"policy misspelt", func(s *sick) { s.kubelet("restricted", "strict") }, "topology-policy", "strict"},
	{"policy by the kubelet's flag", func(s *sick) {
		s.process("7", "/usr/bin/kubelet", "--topology_manager_policy=none", "--v", "2",
			"--config="+s.path("kubelet/config.yaml"))
	}, "topology-policy", "--topology-manager-policy"},
	{"policy in a drop-in", func(s *sick) {
		s.write("kubelet.d/10-base.conf", kubeletKind+"topologyManagerPolicy: restricted\n")
		s.write("kubelet.d/90-cloud.conf", kubeletKind+"topologyManagerPolicy: best-effort\n")
		s.with("--kubelet-config-dir", s.path("kubelet.d"))
	}, "topology-policy", "90-cloud.conf"},
	{"scope pod", func(s *sick) { s.kubelet("Scope: container", "Scope: pod") }, "topology-scope", "pod"},
	{"no configuration", func(s *sick) { s.remove("kubelet/config.yaml") }, "kubelet-config", "config.yaml"},
	{"policy in a drop-in of a folder below", func(s *sick) {
		s.write("kubelet.d/90/cloud.conf", kubeletKind+"topologyManagerPolicy: best-effort\n")
		s.with("--kubelet-config-dir", s.path("kubelet.d"))
	}, "topology-policy", "cloud.conf"},
	{"somebody else's configuration", func(s *sick) {
		s.write("kubelet/config.yaml",
			"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n")
	}, "kubelet-config", "kind is KubeProxyConfiguration"},
	{"broken configuration", func(s *sick) { s.write("kubelet/config.yaml", "topologyManagerPolicy: [") },
		"kubelet-config", "config.yaml"},
	{"CPUs of a NUMA node unknown", func(s *sick) { s.write("sys/devices/system/node/node0/cpulist", "many") },
		"kubelet-config", "node0/cpulist"},
	{"kubelets of two", func(s *sick) {
		s.process("7", "kubelet")
		s.process("8", "kubelet", "--config=/etc/other.yaml")
	}, "kubelet-process", "2 processes match"},
	{"kubelet of a user", func(s *sick) {
		s.process("7", "kubelet", "--topology-manager-policy=none")
		s.write("proc/7/status", "Name:\tkubelet\\nUid:\t0\t0\t0\t0\nUid:\t65534\t65534\t65534\t65534\n")
	}, "kubelet-process", "it is not root's"},
	{"kubelet in a container", func(s *sick) {
		s.process("7", "kubelet", "--topology-manager-policy=none")
		s.namespace("proc/7", "mnt:[2]")
	}, "kubelet-process", "its mnt namespace is not the node's"},
	{"configuration changed, kubelet not restarted", func(s *sick) {
		s.process("7", "kubelet", "--config", s.path("kubelet/config.yaml"))
		s.write("proc/uptime", "7205.00 1.00\n") // uptime of two hours
	}, "kubelet-restart", "config.yaml is younger"},
	{"an option that there is not", func(s *sick) { s.kubelet("prefer-closest-numa-nodes", "prefer-near") },
		"topology-options", "no such option"},
	{"reserved CPUs beside a cgroup", func(s *sick) {
		s.kubelet("reservedSystemCPUs: \"0\"\n", "reservedSystemCPUs: \"0\"\nsystemReservedCgroup: /system.slice\n")
	}, "reserved-cpus", "together with systemReservedCgroup"},
	{"options by a flag, which replace all", func(s *sick) {
		s.write("sys/devices/system/node/online", "0-9\n")
		s.kubelet("prefer-closest-numa-nodes: \"true\"", "max-allowable-numa-nodes: \"16\"")
		s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"),
			"--topology-manager-policy-options=prefer-closest-numa-nodes=true")
	}, "many-numa-nodes", "allows 8"},
	{"ten NUMA nodes", func(s *sick) { s.write("sys/devices/system/node/online", "0-9\n") }, "many-numa-nodes",
		"10 NUMA nodes"},

	{"CPU manager none", func(s *sick) {
		s.kubelet("cpuManagerPolicy: static", "cpuManagerPolicy: none")
		s.cpuState("none", "")
	}, "cpu-manager", "cpuManagerPolicy: none"},
	{"no reserved CPUs", func(s *sick) { s.kubelet("reservedSystemCPUs: \"0\"\n", "") }, "reserved-cpus",
		"not set"},
	{"reserved CPUs that are not there", func(s *sick) {
		s.kubelet(`"0"`, `"0,999"`)
		s.cpuState("static", s.allCPUs()+",999")
	}, "cpu-state reserved-cpus", "999"},
	{"a node's CPUs all reserved", func(s *sick) { s.kubelet(`"0"`, `"56-111,168-223"`) }, "reserved-cpus",
		"node 1"},
	{"CPU state of another policy", func(s *sick) { s.cpuState("none", "") }, "cpu-state", "policyName none"},
	{"CPU state damaged", func(s *sick) { s.write("kubelet/cpu_manager_state", "{") }, "cpu-state",
		"cpu_manager_state"},
	{"CPU state of another layout", func(s *sick) {
		s.write("kubelet/cpu_manager_state", `{"policyName":"static","checksum":1}`)
	}, "cpu-state", `no key "defaultCpuSet"`},
	{"CPU state with other entries", func(s *sick) {
		s.write("kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-223","entries":[]}`)
	}, "cpu-state", "cannot unmarshal array"},
	{"CPUs of a container unreadable", func(s *sick) {
		s.write("kubelet/cpu_manager_state",
			`{"policyName":"static","defaultCpuSet":"0-222","entries":{"uid":{"main":"x"}}}`)
	}, "cpu-state", `CPUs "x"`},
	{"memory state of another layout", func(s *sick) {
		s.write("kubelet/memory_manager_state", `{"policyName":"None"}`)
	}, "memory-state", `no key "machineState"`},
	{"CPU state of fewer CPUs", func(s *sick) { s.cpuState("static", "0-7") }, "cpu-state",
		"not those of the machine"},
	{"reserved CPU given away", func(s *sick) {
		s.write("kubelet/cpu_manager_state",
			`{"policyName":"static","defaultCpuSet":"1-111","entries":{"uid":{"main":"0"}},"checksum":1}`)
	}, "cpu-state", "reserved: 0"},
	{"memory manager without reserved memory", func(s *sick) {
		s.kubelet("cpuManagerPolicy: static", "cpuManagerPolicy: static\nmemoryManagerPolicy: Static")
		s.remove("kubelet/memory_manager_state")
	}, "reserved-memory", "reservedMemory"},
	{"memory state of another policy", func(s *sick) {
		s.write("kubelet/memory_manager_state", `{"policyName":"Static","machineState":{},"entries":{}}`)
	}, "memory-state", "Static"},

	{"GPU without NUMA node", func(s *sick) { s.write(s.device(ociGPU0, "numa_node"), "-1\n") },
		"numa-node refused-shapes", ociGPU0},
	{"NIC without NUMA node", func(s *sick) { s.write(s.device(ociPF0, "numa_node"), "-1\n") }, "numa-node",
		ociPF0},
	{"GPU for virtual machines", func(s *sick) {
		s.remove(s.device(ociGPU0, "driver"))
		s.link("sys/bus/pci/drivers/vfio-pci", s.device(ociGPU0, "driver"))
	}, "gpu-driver", "vfio-pci"},
	{"GPU without driver", func(s *sick) { s.remove(s.device(ociGPU1, "driver")) }, "gpu-driver", ociGPU1},
	{"no VFs on one NIC", func(s *sick) { s.withoutVFs(ociPF0) }, "no-vfs", "sriov_numvfs 0 of 16"},
	{"SR-IOV off in one NIC", func(s *sick) {
		s.withoutVFs(ociPF0)
		s.write(s.device(ociPF0, "sriov_totalvfs"), "0\n")
	}, "sriov-off", "sriov_totalvfs 0"},
	{"VF without driver", func(s *sick) { s.remove(s.device(ociVF0, "driver")) }, "far-shapes vf-driver",
		ociVF0},
	{"VF without RDMA", func(s *sick) {
		s.remove(s.device(ociVF0, "infiniband"), s.device(ociVF0, "infiniband_verbs"))
	}, "far-shapes vf-rdma", ociVF0},
	{"NIC link slow", func(s *sick) {
		s.write(s.device(ociPF1, "current_link_speed"), "16.0 GT/s PCIe\n")
		s.write(s.device(ociPF1, "max_link_speed"), "32.0 GT/s PCIe\n")
	}, "degraded-link", "16 GT/s"},
	{"GPU link narrow", func(s *sick) {
		s.write(s.device(ociGPU1, "current_link_width"), "8\n")
		s.write(s.device(ociGPU1, "max_link_width"), "16\n")
	}, "degraded-link", "x8 of x16"},
	{"ACS redirects requests", func(s *sick) { s.write(s.device(ociPort0, "config"), acsConfig(0x001d)) },
		"acs-redirect", ociPort0},
	{"ACS not readable", func(s *sick) { s.write(s.device(ociPort0, "config"), acsConfig(0)[:64]) },
		"acs-redirect", "64 bytes"},
	{"no /dev/kfd", func(s *sick) { s.remove("dev/kfd") }, "device-nodes", "/dev/kfd"},
	{"no render node", func(s *sick) { s.remove("dev/dri/renderD128") }, "device-nodes", "renderD128"},
	{"no uverbs node of a VF", func(s *sick) { s.remove("dev/infiniband/uverbs8") }, "device-nodes", ociVF0},
	{"no rdma_cm", func(s *sick) { s.remove("dev/infiniband/rdma_cm") }, "device-nodes", "rdma_cm"},

	{"kubelet away", func(s *sick) { s.remove("kubelet/device-plugins/kubelet.sock") }, "kubelet-socket",
		"no such file"},
	{"kubelet's socket left over", func(s *sick) {
		s.remove("kubelet/device-plugins/kubelet.sock")
		s.write("kubelet/device-plugins/kubelet.sock", "")
	}, "kubelet-socket", "connection refused"},
	{"no pod-resources", func(s *sick) { s.remove("kubelet/pod-resources") }, "pod-resources", "pod-resources"},
	{"NVIDIA's plugin runs", func(s *sick) { s.listen("kubelet/device-plugins/nvidia-gpu.sock") },
		"stock-plugin", "NVIDIA"},
	{"AMD's plugin runs", func(s *sick) { s.listen("kubelet/device-plugins/amd.com_gpu") }, "stock-plugin",
		"AMD"},
	{"SR-IOV plugin runs", func(s *sick) {
		s.checkpoint(`{"tandem.dev/rdma_vf": ["` + ociVF0 + `"]}`)
		s.listen("kubelet/plugins_registry/tandem.dev_rdma_vf.sock")
	}, "stock-plugin", "SR-IOV"},
	{"checkpoint damaged", func(s *sick) { s.write("kubelet/device-plugins/kubelet_internal_checkpoint", "{") },
		"checkpoint", "unexpected end"},
	{"claims of unknown devices", func(s *sick) { s.write("kubelet/plugins/tandem.dev/claims.json", "{") },
		"claims", "unexpected end"},
	{"VF under two names", func(s *sick) {
		s.checkpoint(`{"tandem.dev/rdma_vf": ["` + ociVF0 + `"], "intel.com/vf": ["` + ociVF0 + `"]}`)
	}, "offered-twice", "intel.com/vf, tandem.dev/rdma_vf"},
	{"VF of a pod gone", func(s *sick) {
		s.write("kubelet/device-plugins/kubelet_internal_checkpoint",
			`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"tandem.dev/rdma_vf","DeviceIDs":{"0":["0000:0c:00.7"]}}],"RegisteredDevices":{}}}`)
	}, "device-gone", "0000:0c:00.7"},
	{"run folder is a file", func(s *sick) { s.write("run", "") }, "run-folder", "no folder"},
	{"coordination socket is a file", func(s *sick) { s.write("run/coordination.sock", "") }, "run-folder",
		"is not a socket"},

	{"refused pods", func(s *sick) {
		s.pods.Store(&[]corev1.Pod{
			failed("team", "train-1", "TopologyAffinityError"), failed("team", "train-0", "TopologyAffinityError"),
			failed("team", "other", "UnexpectedAdmissionError"), {Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		})
	}, "refused-pods", "2 pods are rejected"},
	{"refused pods of the API server", func(s *sick) { s.with("--refused-pods", "7") }, "refused-pods",
		"7 pods are rejected"},

	{"daemons in two folders", func(s *sick) {
		s.remove("kubelet/pod-resources") // without a server
		runPlugins(s.t, s.path("run"))
		runPlugins(s.t, s.path("kubelet/device-plugins/tandem"))
	}, "pod-resources run-folders", "kubelet/device-plugins/tandem"},

	{"CPUs of another shape", func(s *sick) { s.with("--cpus", "2") }, "refused-shapes", "with 2 CPUs"},
	{"pool with VFs of few NICs", func(s *sick) {
		s.write("config.json", strings.Replace(everyVF, `"isRdma": true`,
			`"isRdma": true, "rootDevices": ["0000:0c:00.0#0-1", "0000:2a:00.0#0-1"]`, 1))
	}, "far-shapes", "2 of 3 pairs"},
}

// link makes a relative link between two places in the folder.
func (s *sick) link(target, name string) {
	s.t.Helper()
	s.write(target+"/uevent", "")
	s.symlink(target, name)
}

func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	sys := map[int]string{1: sysfs(t, "oci-mi300x-derived", 1), 2: sysfs(t, "oci-mi300x-derived", 2)}
	reports := make([]string, len(faults))
	t.Cleanup(func() {
		if !slices.Contains(reports, "") { // else -run has left some out, or they have failed
			golden.Check(t, "testdata/doctor-faults.txt", strings.Join(reports, ""))
		}
	})
	for i, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sys[perPF(fault.name)])
			fault.seed(s)
			found := s.findings()
			check(t, found, fault.want, fault.about)
			reports[i] = fmt.Sprintf("== %s\n%s\n", fault.name, s.anywhere(string(doctor.Report(found))))
		})
	}
	if len(faults) < 25 {
		t.Errorf("only %d faults", len(faults))
	}
}

// perPF returns the number of VFs per PF: two for a pool with a missing VF and others.
func perPF(name string) int {
	if name == "pool with VFs of few NICs" {
		return 2
	}
	return 1
}

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
		t.Errorf("findings (-want +got):\n%s%s", diff, doctor.Report(findings))
	}
	if !told {
		t.Errorf("nothing is said about %q:\n%s", about, doctor.Report(findings))
	}
}

// TestDoctorOnOtherMachines: recorded machines with faults of their own.
func TestDoctorOnOtherMachines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		machine string
		perPF   int
		seed    func(s *sick)
		want    string
		about   string
	}{
		{"nv-h200-vm-flat", 1, func(*sick) {}, "no-shared-switch", "No GPU shares a switch"},
		{"nv-4xrtx6000ada-2cx7", 2, func(*sick) {}, "no-shared-switch", "No GPU shares a switch"},
		{"amd-mi300x-cpx-kfd", 0, func(s *sick) { s.with("--config", "") }, "no-vf", "no NIC with RDMA"},
		{"oci-mi300x-derived", 1, func(s *sick) {
			s.write("config.json", strings.Replace(everyVF, `"isRdma": true`, `"vendors": ["8086"]`, 1))
		}, "no-vf", "selects none"},
		{"oci-mi300x-derived", 4, func(s *sick) { s.noExclusion() }, "refused-shapes", "5+5 to 8+8"},
		{"oci-mi300x-derived", 0, func(s *sick) {}, "no-vfs", "8 PFs near GPUs have no VFs"},
		{"amd-mi250-16gcd-8nic", 2, func(s *sick) {
			s.kubelet("  prefer-closest-numa-nodes: \"true\"\n", "", "topologyManagerPolicyOptions:\n", "")
		}, "closest-nodes", "there are 4"},
	} {
		t.Run(test.machine, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, test.machine, test.perPF))
			test.seed(s)
			check(t, s.findings(), test.want, test.about)
		})
	}
}
