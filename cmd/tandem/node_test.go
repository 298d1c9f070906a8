// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/machines"
	standin "github.com/tandem-k8s/tandem/test/podresources"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/topology"
)

// sick is a machine and a kubelet laid out in a folder, healthy until a test changes something.
type sick struct {
	t    *testing.T
	root string                       // short, for the sockets
	pods atomic.Pointer[[]corev1.Pod] // the kubelet's pods
}

const kubeletKind = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
`

const healthyKubelet = "# of kubeadm\n" + kubeletKind + `topologyManagerPolicy: restricted
topologyManagerScope: container
topologyManagerPolicyOptions:
  prefer-closest-numa-nodes: "true"
cpuManagerPolicy: static
reservedSystemCPUs: "0"
`

// everyVF is a pool with all VFs, without NUMA hints.
const everyVF = `{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "tandem.dev", "excludeTopology": true, "selectors": {"isRdma": true}}]}`

// laidOut are the machines laid out by sysfs; TestMain removes their folders.
var laidOut = struct {
	sync.Mutex
	folders map[string]string
}{folders: map[string]string{}}

// sysfs returns the folder of a machine's sysfs, written once and shared read-only by all tests.
func sysfs(t *testing.T, machine string, perPF int) string {
	t.Helper()
	laidOut.Lock()
	defer laidOut.Unlock()
	name := fmt.Sprint(machine, " ", perPF)
	if dir := laidOut.folders[name]; dir != "" {
		return dir
	}
	sys := machines.Sys(t, machine, perPF)
	dir, err := os.MkdirTemp("", "sysfs")
	ready(t, err)
	laidOut.folders[name] = dir // for TestMain, whatever fails now
	// Users other than root read it too (runAsNobody).
	ready(t, errors.Join(os.Chmod(dir, 0o755), os.CopyFS(dir, sys)))
	return dir
}

// layOut makes a healthy node with a sysfs.
func layOut(t *testing.T, sys string) *sick {
	t.Helper()
	root, err := os.MkdirTemp("", "doc")
	ready(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	s := &sick{t: t, root: root}
	s.pods.Store(&[]corev1.Pod{})
	s.check(os.Symlink(sys, s.path("sys")))
	s.write("config.json", everyVF)
	s.write("kubelet/config.yaml", healthyKubelet)
	s.process("7", "kubelet", "--config="+s.path("kubelet/config.yaml"))
	s.listen("kubelet/device-plugins/kubelet.sock")
	// The answer of a kubelet that hangs, without the wait of seconds.
	standin.Serve(t, s.path("kubelet"), podResources{})
	s.write("kubelet/memory_manager_state", `{"policyName":"None","machineState":{},"entries":{},"checksum":1}`)
	s.cpuState("static", s.allCPUs())
	s.deviceNodes()
	stop, err := podsapi.Serve(s.path("kubelet"), func() []corev1.Pod { return *s.pods.Load() })
	s.check(err)
	t.Cleanup(stop)
	return s
}

// failed returns a pod that failed for a reason.
func failed(namespace, name, reason string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Status:     corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason},
	}
}

// path returns the place of a file; a name that begins with the address of a PCI function is one of its
// files.
func (s *sick) path(name string) string {
	address, _, _ := strings.Cut(name, "/")
	if _, err := topology.ParseAddress(address); err == nil {
		name = "sys/bus/pci/devices/" + name
	}
	return filepath.Join(s.root, name)
}

func (s *sick) check(err error) {
	s.t.Helper()
	ready(s.t, err)
}

// own gives the node a copy of the sysfs, before a file of it changes. Hard links take a tenth of the time of
// copies: what changes a file replaces it.
func (s *sick) own(name string) {
	s.t.Helper()
	shared, err := os.Readlink(s.path("sys"))
	if err != nil || !strings.HasPrefix(s.path(name), s.path("sys")+"/") {
		return // it has a copy, or the file is another's
	}
	s.check(os.Remove(s.path("sys")))
	if out, err := exec.Command("cp", "-al", shared, s.path("sys")).CombinedOutput(); err != nil {
		s.t.Fatalf("copy: %v %s", err, out)
	}
}

func (s *sick) write(name, content string) {
	s.t.Helper()
	s.own(name)
	s.check(os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	s.check(os.RemoveAll(s.path(name))) // it may be a link to a shared file
	s.check(os.WriteFile(s.path(name), []byte(content), 0o644))
}

func (s *sick) remove(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.own(name)
		if _, err := os.Lstat(s.path(name)); err != nil {
			s.t.Fatalf("there is nothing to remove: %v", err)
		}
		s.check(os.RemoveAll(s.path(name)))
	}
}

// listen opens a socket.
func (s *sick) listen(name string) {
	s.t.Helper()
	s.check(os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	listener, err := net.Listen("unix", s.path(name))
	s.check(err)
	s.t.Cleanup(func() { listener.Close() })
}

// process lays out the kubelet's process: root's, in the node's namespaces, and started just now.
func (s *sick) process(pid string, args ...string) {
	s.t.Helper()
	for name, content := range map[string]string{
		"comm": "kubelet\n", "cmdline": strings.Join(args, "\x00") + "\x00",
		"status": "Name:\tkubelet\nUid:\t0\t0\t0\t0\n",
		"stat":   pid + " (kubelet) S" + strings.Repeat(" 1", 18) + " 500 1 1\n",
	} {
		s.write("proc/"+pid+"/"+name, content)
	}
	s.write("proc/uptime", "5.00 1.00\n")
	for _, process := range []string{"1", "self", pid} {
		s.namespace("proc/"+process, "mnt:[1]")
	}
}

// namespace puts a process of /proc into a mount namespace.
func (s *sick) namespace(process, mount string) {
	s.t.Helper()
	s.check(os.MkdirAll(s.path(process+"/ns"), 0o755))
	for name, target := range map[string]string{"mnt": mount, "pid": "pid:[1]"} {
		link := s.path(process + "/ns/" + name)
		s.check(os.RemoveAll(link))
		s.check(os.Symlink(target, link))
	}
}

func (s *sick) cpuState(policy, shared string) {
	s.t.Helper()
	s.write("kubelet/cpu_manager_state",
		fmt.Sprintf(`{"policyName":%q,"defaultCpuSet":%q,"checksum":1}`, policy, shared))
}

// allCPUs returns the CPUs of all NUMA nodes, in the kernel's list format.
func (s *sick) allCPUs() string {
	s.t.Helper()
	files, err := filepath.Glob(s.path("sys/devices/system/node/node*/cpulist"))
	s.check(err)
	var lists []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		s.check(err)
		lists = append(lists, strings.TrimSpace(string(content)))
	}
	return strings.Join(lists, ",")
}

// deviceNodes creates the device nodes of the machine's drivers.
func (s *sick) deviceNodes() {
	s.t.Helper()
	s.write("dev/null", "")
	for pattern, dir := range map[string]string{
		"sys/class/drm/renderD*":        "dev/dri",
		"sys/class/infiniband_verbs/u*": "dev/infiniband",
		"sys/class/infiniband_mad/u*":   "dev/infiniband",
		"sys/module/amdgpu":             "",
		"sys/bus/pci/drivers/nvidia":    "",
	} {
		nodes, err := filepath.Glob(s.path(pattern))
		s.check(err)
		for _, node := range nodes {
			switch filepath.Base(node) {
			case "amdgpu":
				s.write("dev/kfd", "")
			case "nvidia":
				s.write("dev/nvidiactl", "")
			default:
				s.write(filepath.Join(dir, filepath.Base(node)), "")
			}
		}
	}
	s.write("dev/infiniband/rdma_cm", "")
}

// command is tandem doctor on the node.
func (s *sick) command(args ...string) []string {
	return slices.Concat([]string{
		"doctor", "--sysfs-root", s.path("sys"), "--dev-root", s.path("dev"), "--kubelet-dir", s.path("kubelet"),
		"--run-dir", s.path("run"), "--proc-root", s.path("proc"), "--config", s.path("config.json"),
	}, args)
}

// symlink creates a link with a relative target, resolving links on the way.
func (s *sick) symlink(target, name string) {
	s.t.Helper()
	s.own(name)
	dir, err := filepath.EvalSymlinks(filepath.Dir(s.path(name)))
	s.check(err)
	relative, err := filepath.Rel(dir, s.path(target))
	s.check(err)
	s.check(os.Symlink(relative, filepath.Join(dir, filepath.Base(name))))
}

// withoutVFs takes the VFs of a PF away as the kernel does when 0 is written to sriov_numvfs.
func (s *sick) withoutVFs(pf string) {
	s.t.Helper()
	s.own(pf + "/sriov_numvfs")
	links, err := filepath.Glob(s.path(pf + "/virtfn*"))
	s.check(err)
	for _, link := range links {
		vf, err := os.Readlink(link)
		s.check(err)
		name := filepath.Base(vf)
		place, err := filepath.EvalSymlinks(s.path(name))
		s.check(err)
		s.check(os.RemoveAll(place))
		s.check(os.Remove(s.path(name)))
		s.check(os.Remove(link))
	}
	s.write(pf+"/sriov_numvfs", "0\n")
}

// eightNodes gives each of the eight root complexes with a GPU, and a share of the CPUs, a NUMA node of its
// own, as with NPS4 on two sockets.
func (s *sick) eightNodes() {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*"))
	s.check(err)
	roots := map[string][]string{}
	for _, function := range functions {
		place, err := filepath.EvalSymlinks(function)
		s.check(err)
		_, below, _ := strings.Cut(place, "/devices/")
		root, _, _ := strings.Cut(below, "/")
		roots[root] = append(roots[root], filepath.Base(function))
	}
	number := 0
	for _, root := range slices.Sorted(maps.Keys(roots)) {
		if len(roots[root]) < 3 { // neither GPU nor NIC
			continue
		}
		for _, address := range roots[root] {
			s.write(address+"/numa_node", fmt.Sprintln(number))
		}
		number++
	}
	if number != 8 {
		s.t.Fatalf("%d root complexes with devices, want 8", number)
	}
	s.write("sys/devices/system/node/online", "0-7\n")
	for node := range 8 {
		cpus := fmt.Sprintf("%d-%d\n", 28*node, 28*node+27)
		s.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node), cpus)
	}
}

// halve moves the devices of the upper four of eight NUMA nodes to the lower four.
func (s *sick) halve() {
	s.t.Helper()
	functions, err := filepath.Glob(s.path("sys/bus/pci/devices/*"))
	s.check(err)
	for _, function := range functions {
		name := filepath.Base(function) + "/numa_node"
		content, err := os.ReadFile(s.path(name))
		s.check(err)
		if number, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && number >= 4 {
			s.write(name, fmt.Sprintln(number-4))
		}
	}
}

// oneNode gives all CPUs to the first NUMA node.
func (s *sick) oneNode() {
	s.t.Helper()
	s.write("sys/devices/system/node/node0/cpulist", "0-63\n")
	for number := 1; number < 8; number++ {
		s.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", number), "\n")
	}
}

// configSpace returns the configuration space of a port whose ACS control register has a value, after another
// capability. Without a value it is the part that every user can read.
func configSpace(t *testing.T, control []string) string {
	t.Helper()
	config := make([]byte, 4096)
	if len(control) == 0 {
		return string(config[:64])
	}
	value, err := strconv.ParseUint(control[0], 16, 16)
	ready(t, err)
	// advanced error reporting, the next at 0x140
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|1<<16|0x140<<20)
	binary.LittleEndian.PutUint32(config[0x140:], 0x000d|1<<16)
	binary.LittleEndian.PutUint16(config[0x146:], uint16(value))
	return string(config)
}

// bridges returns the ports above a PCI function.
func (s *sick) bridges(address string) []string {
	s.t.Helper()
	target, err := os.Readlink(s.path("sys/bus/pci/devices/" + address))
	s.check(err)
	return strings.Split(filepath.Dir(target), "/")[5:] // ../../../devices/pci….
}
