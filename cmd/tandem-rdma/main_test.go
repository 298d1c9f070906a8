package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// The test binary is the daemon too, when this variable says so.
const asDaemon = "TANDEM_RDMA_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
	}
	os.Exit(m.Run())
}

// node is a node in a folder.
type node struct{ root, kubelet string }

func newNode(t *testing.T, machine string, vfsPerPF int) node {
	t.Helper()
	n := node{root: t.TempDir(), kubelet: kubelettest.Dir(t)}
	m, err := machines.Load(machine, vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Layout(n.path("sys")); err != nil {
		t.Fatal(err)
	}
	n.write(t, "dev/infiniband/rdma_cm", "")
	return n
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

// daemon is the command on this node, with its standard error.
func (n node) daemon(ctx context.Context, extra ...string) (*exec.Cmd, *bytes.Buffer) {
	args := append([]string{
		"--sysfs-root=" + n.path("sys"), "--dev-root=" + n.path("dev"), "--kubelet-dir=" + n.kubelet,
		"--run-dir=" + filepath.Join(n.kubelet, "run"), "--devinfo-dir=" + n.path("devinfo"),
		"--config-file=" + n.path("config.json"), "--resource-prefix=nvidia.com",
	}, extra...)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

func TestDaemon(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json", `{"resourceList": [
		{"resourceName": "rdma", "selectors": {"vendors": ["15b3"], "isRdma": true}},
		{"resourceName": "nothing", "selectors": {"vendors": ["ffff"]}}]}`)
	kubelet := kubelettest.Start(t, n.kubelet)
	cmd, stderr := n.daemon(t.Context())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if list := kubelettest.Await(t, plugin.Lists); len(list) != 8 {
		t.Errorf("%d devices; want 8", len(list))
	}
	answer, err := plugin.Client.Allocate(t.Context(), &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"0000:0c:00.1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetContainerResponses()[0].GetEnvs()["PCIDEVICE_NVIDIA_COM_RDMA"]; got != "0000:0c:00.1" {
		t.Errorf("variable is %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, stderr)
	}
	for _, line := range []string{
		`msg="no device: resource is not offered until there is one" resource=nvidia.com/nothing`,
		`msg=allocate resource=nvidia.com/rdma devices=[0000:0c:00.1]`,
	} {
		if strings.Count(stderr.String(), line) != 1 {
			t.Errorf("%q is not logged once:\n%s", line, stderr)
		}
	}
	if _, err := os.Stat(n.path("devinfo/nvidia.com-rdma-0000:0c:00.1-device.json")); err != nil {
		t.Errorf("the device-info file of a running pod did not survive the daemon: %v", err)
	}
}

// What the daemon cannot start with is one sentence at the end of standard error, and exit code 1.
func TestDaemonCannotStart(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1)
	config := n.path("config.json")
	for _, c := range []struct{ name, config, want string }{
		{"no file", "", "read configuration " + config + ": no such file or directory"},
		{"empty file", "\n", "read configuration " + config + `: the file is empty; want {"resourceList": [...]}`},
		{"not JSON", "hello", "read configuration " + config + ": not JSON: line 1: invalid character 'h' looking for beginning of value"},
		{"unknown deviceType", `{"resourceList": [{"resourceName": "a", "deviceType": "nic"}]}`,
			"read configuration " + config + `: resource "a": deviceType "nic" is unknown; want netDevice, accelerator or auxNetDevice`},
		{"twice", `{"resourceList": [{"resourceName": "a"}, {"resourceName": "a"}]}`,
			"read configuration " + config + `: resource "a": resourceName is there twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_ = os.Remove(config)
			if c.config != "" {
				n.write(t, "config.json", c.config)
			}
			cmd, stderr := n.daemon(t.Context(), "--log-level=error")
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v; want exit code 1", err)
			}
			if diff := cmp.Diff("tandem-rdma: "+c.want+"\n", stderr.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
