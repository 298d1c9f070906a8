// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// Variables with which the test binary runs the daemon, with and without inotify.
const (
	asDaemon  = "TANDEM_RDMA_TEST_MAIN"
	noInotify = "TANDEM_RDMA_TEST_NO_INOTIFY"
)

func TestMain(m *testing.M) {
	if os.Getenv(noInotify) != "" {
		if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0o600); err != nil {
			panic(err)
		}
	}
	if uplink := os.Getenv(defaultRoute); uplink != "" {
		if err := enterNode(uplink, os.Getenv(nodeSysfs)); err != nil {
			panic(err)
		}
	}
	if os.Getenv(asDaemon) != "" {
		main()
	}
	os.Exit(m.Run())
}

// node is a node in a folder.
type node struct{ root, kubelet string }

func newNode(t *testing.T, machine string, vfsPerPF int) node {
	t.Helper()
	return nodeOf(t, machines.Sys(t, machine, vfsPerPF))
}

// nodeOf is newNode for a sysfs.
func nodeOf(t *testing.T, sys fs.FS) node {
	t.Helper()
	n := node{root: t.TempDir(), kubelet: kubelettest.Dir(t)}
	if err := os.CopyFS(n.path("sys"), sys); err != nil {
		t.Fatal(err)
	}
	n.write(t, "dev/infiniband/rdma_cm", "")
	return n
}

// start starts a kubelet and the daemon.
func (n node) start(t *testing.T, extra ...string) (*kubelettest.Kubelet, *programs.Process) {
	t.Helper()
	return kubelettest.Start(t, n.kubelet), programs.Start(t, n.daemon(extra...))
}

func (n node) path(name string) string { return filepath.Join(n.root, name) }

func (n node) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files lists a folder of the node.
func (n node) files(t *testing.T, name string) []string {
	t.Helper()
	entries, err := os.ReadDir(n.path(name))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// pool returns a configuration with one resource.
func pool(selectors string) string {
	return `{"resourceList": [{"resourceName": "vf", "selectors": {` + selectors + `}}]}`
}

// daemon is the command on this node.
func (n node) daemon(extra ...string) *exec.Cmd {
	args := append([]string{
		"--sysfs-root=" + n.path("sys"), "--dev-root=" + n.path("dev"), "--kubelet-dir=" + n.kubelet,
		"--run-dir=" + filepath.Join(n.kubelet, "run"), "--devinfo-dir=" + n.path("devinfo"),
		"--config-file=" + n.path("config.json"), "--resource-prefix=nvidia.com", "--cdi-dirs=" + n.path("cdi"),
	}, extra...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	return cmd
}

func healthyOf(devices []*v1beta1.Device) (ids []string) {
	for _, d := range devices {
		if d.GetHealth() == v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	slices.Sort(ids)
	return ids
}

func TestDaemon(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json", `{"resourceList": [
		{"resourceName": "rdma", "selectors": {"vendors": ["15b3"], "isRdma": true}},
		{"resourceName": "nothing", "selectors": {"vendors": ["ffff"]}}]}`)
	n.write(t, "cdi/other.yaml", "")
	n.write(t, "cdi/sriov-dp-nvidia.com-net-pci-rdma.yaml", "") // from when the daemon used CDI
	kubelet, daemon := n.start(t)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if list := kubelettest.Await(t, plugin.Lists); len(list) != 8 {
		t.Errorf("%d devices; want 8", len(list))
	}
	answer, err := plugin.Allocate(t.Context(), "0000:0c:00.1")
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetEnvs()["PCIDEVICE_NVIDIA_COM_RDMA"]; got != "0000:0c:00.1" ||
		len(answer.GetDevices()) != 4 {
		t.Errorf("answer %v", answer)
	}
	if specs := n.files(t, "cdi"); !slices.Equal(specs, []string{"other.yaml"}) {
		t.Errorf("without CDI the specs are %v", specs)
	}
	daemon.Stop(t, syscall.SIGTERM)
	for _, line := range []string{
		`msg="resource has no device and is not offered until a device appears" resource=nvidia.com/nothing`,
		`msg=allocated resource=nvidia.com/rdma devices=[0000:0c:00.1]`,
	} {
		if strings.Count(daemon.Log(), line) != 1 {
			t.Errorf("%q is not logged once:\n%s", line, daemon.Log())
		}
	}
	if _, err := os.Stat(n.path("devinfo/nvidia.com-rdma-0000:0c:00.1-device.json")); err != nil {
		t.Errorf("the device-info file of a running pod did not survive the daemon: %v", err)
	}
}

// TestWithoutInotify: other programs of a node may use up its inotify instances. The daemon still detects a
// late kubelet and a restarted one.
func TestWithoutInotify(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "rdma", "selectors": {"vendors": ["15b3"]}}]}`)
	cmd := n.daemon()
	cmd.Env = append(cmd.Env, noInotify+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{ // of a user namespace of its own the limit can be set
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	daemon := programs.Start(t, cmd)
	kubelet := kubelettest.Start(t, n.kubelet)
	first := kubelettest.Await(t, kubelet.Plugins)
	kubelet.Recreate()
	second := kubelettest.Await(t, kubelet.Plugins)
	if list := kubelettest.Await(t, second.Lists); len(list) != 8 || first.Socket == second.Socket {
		t.Errorf("%d devices at %s, after %s", len(list), second.Socket, first.Socket)
	}
	daemon.Stop(t, syscall.SIGTERM)
	if strings.Count(daemon.Log(), "inotify not available; polling") != 1 {
		t.Errorf("log:\n%s", daemon.Log())
	}
}

// TestDaemonCannotStart: a failed start ends with one sentence on standard error, and with exit code 1. The
// stock plugin's is 0 for an unreadable configuration, so that its pod looks completed.
func TestDaemonCannotStart(t *testing.T) {
	t.Attr("parity", "sriov/config-json")
	n := nodeOf(t, functions.New().FS())
	golden.Script{
		Run: func(args []string) (code int, stdout, stderr string) {
			daemon := programs.Start(t, n.daemon(args[1:]...))
			code = daemon.Exit(t)
			return code, "", daemon.Log()
		},
	}.Check(t, "testdata/errors.txt")
}

// An empty --cdi-dirs is a mistake: one sentence on standard error.
func TestNoCDIDirs(t *testing.T) {
	n := nodeOf(t, functions.New().FS())
	n.write(t, "config.json", pool(`"isRdma": true`))
	cmd := n.daemon()
	cmd.Args[len(cmd.Args)-1] = "--cdi-dirs="
	daemon := programs.Start(t, cmd)
	if code := daemon.Exit(t); code == 0 || !strings.Contains(daemon.Log(), "--cdi-dirs is empty") {
		t.Errorf("exit code %d:\n%s", code, daemon.Log())
	}
}

// The command lines of the stock plugin's manifests, of its operator and of its binary.
func TestCommandLines(t *testing.T) {
	t.Attr("parity", "sriov/flags-entrypoint")
	t.Attr("parity", "sriov/flags-binary")
	n := nodeOf(t, functions.New().FS()) // without a configuration, so that it exits at once
	for _, c := range []struct {
		args []string
		want string // on standard error
	}{
		{[]string{"--log-dir=sriovdp", "--log-level=10"}, "config.log-level=INFO"},
		{[]string{"--log-level=10", "--resource-prefix=openshift.io", "--use-cdi"}, "config.use-cdi=true"},
		{[]string{"--log-level=10", "--resource-prefix=openshift.io"}, "config.resource-prefix=openshift.io"},
		{[]string{"-v", "10", "--logtostderr", "-use-cdi"}, "config.use-cdi=true"},
		{[]string{"-v=10", "--log_dir", "/var/log/x", "--alsologtostderr", "-stderrthreshold=INFO"},
			"config.resource-prefix=nvidia.com"},
		{[]string{"--resource-prefix="}, "config.resource-prefix=intel.com"},
		{[]string{"--resource-prefix", "", "--config-file=", "--sysfs-root=/nope"},
			"config.config-file=/etc/pcidp/config.json config.resource-prefix=intel.com"},
	} {
		daemon := programs.Start(t, n.daemon(c.args...))
		if code := daemon.Exit(t); code != 1 || !strings.Contains(daemon.Log(), c.want) {
			t.Errorf("%q: exit code %d; want 1 and %q in\n%s", c.args, code, c.want, daemon.Log())
		}
	}
}

// A second instance may start before the first one has ended (maxSurge, or a forced deletion of a pod): the
// first one leaves the CDI spec, which restarting containers need.
func TestSurgeWithCDI(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json",
		`{"resourceList": [{"resourceName": "rdma", "selectors": {"vendors": ["15b3"], "isRdma": true}}]}`)
	kubelet := kubelettest.Start(t, n.kubelet)
	var instances []*programs.Process
	for range 2 {
		instances = append(instances, programs.Start(t, n.daemon("--use-cdi")))
		kubelettest.Await(t, kubelettest.Await(t, kubelet.Plugins).Lists)
	}
	for _, daemon := range instances {
		daemon.Stop(t, syscall.SIGTERM)
		if specs := n.files(t, "cdi"); len(specs) != 1 || specs[0] != "sriov-dp-nvidia.com-net-pci-rdma.yaml" {
			t.Errorf("CDI specs %v", specs)
		}
	}
}

// Each signal of the stock plugin ends the daemon, which leaves the files for restarting containers: CDI spec
// and files for Multus.
func TestSignals(t *testing.T) {
	t.Attr("parity", "sriov/signals")
	t.Attr("parity", "sriov/socket-name")
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json",
		`{"resourceList": [{"resourceName": "rdma", "selectors": {"vendors": ["15b3"], "isRdma": true}}]}`)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP} {
		n.write(t, "cdi/sriov-dp-old.yaml", "")
		kubelet, daemon := n.start(t, "--use-cdi")
		plugin := kubelettest.Await(t, kubelet.Plugins)
		if name := filepath.Base(plugin.Socket); !strings.HasPrefix(name, "nvidia.com_rdma") ||
			!strings.HasSuffix(name, ".sock") {
			t.Errorf("socket %s", name)
		}
		kubelettest.Await(t, plugin.Lists)
		specs := n.files(t, "cdi")
		if len(specs) != 1 || specs[0] != "sriov-dp-nvidia.com-net-pci-rdma.yaml" {
			t.Errorf("CDI specs %v", specs)
		}
		daemon.Stop(t, signal)
		if left := n.files(t, "cdi"); !slices.Equal(left, specs) {
			t.Errorf("%s left CDI specs %v", signal, left)
		}
		if files := n.files(t, "devinfo"); len(files) != 8 {
			t.Errorf("%s left %v for Multus; want a file for each of 8 VFs", signal, files)
		}
		if sockets, _ := filepath.Glob(filepath.Join(kubelettest.Plugins(n.kubelet),
			"nvidia.com_rdma*")); len(sockets) > 0 {
			t.Errorf("%s left sockets %v", signal, sockets)
		}
	}
}

// The machine changes while the daemon runs: a resource without devices is offered once it has one, and a
// removed VF is unhealthy.
func TestMachineChanges(t *testing.T) {
	t.Attr("parity", "sriov/empty-pool")
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json",
		`{"resourceList": [{"resourceName": "rdma", "selectors": {"pciAddresses": ["0000:0c:00.1"]}}]}`)
	link := n.path("sys/bus/pci/devices/0000:0c:00.1")
	target, err := os.Readlink(link)
	if err == nil {
		err = os.Remove(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	kubelet, daemon := n.start(t)
	daemon.Until(t, func() bool { return strings.Contains(daemon.Log(), "joined coordination") })
	select {
	case <-kubelet.Plugins:
		t.Fatal("a resource without a device was registered")
	default:
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if list := kubelettest.Await(t, plugin.Lists); len(list) != 1 || list[0].GetHealth() != v1beta1.Healthy {
		t.Errorf("first list %v", list)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if list := kubelettest.Await(t, plugin.Lists); len(list) != 1 || list[0].GetHealth() != v1beta1.Unhealthy {
		t.Errorf("second list %v", list)
	}
	daemon.Stop(t, syscall.SIGTERM)
}
