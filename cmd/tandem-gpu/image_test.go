package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

// image is a node's root folder as a container of our image has it: the image's files, the machine in /sys
// and the kubelet in /var/lib/kubelet.
type image struct {
	root    string
	workdir string
	command []string // of a container whose manifest names none
}

func newImage(t *testing.T, machine string) image {
	t.Helper()
	if _, err := os.Stat("/bin/busybox"); err != nil {
		t.Skipf("no shell for the image: %v; install the Debian package busybox-static", err)
	}
	// A short name, for sockets below it.
	bin, err := os.MkdirTemp("", "i")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	if output, err := exec.Command("make", "-C", "../..", "rootfs", "BIN="+bin).CombinedOutput(); err != nil {
		t.Fatalf("make rootfs: %v\n%s", err, output)
	}
	i := image{root: filepath.Join(bin, "rootfs")}
	for _, folder := range []string{"run", "dev", "tmp", "var/lib/kubelet/device-plugins"} {
		if err := os.MkdirAll(filepath.Join(i.root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	i.configure(t)
	m, err := machines.Load(machine, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Layout(filepath.Join(i.root, "sys")); err != nil {
		t.Fatal(err)
	}
	return i
}

// configure reads what the Dockerfile says of containers.
func (i *image) configure(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(content), "FROM scratch")
	for line := range strings.Lines(last) {
		switch instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " "); instruction {
		case "WORKDIR":
			i.workdir = rest
		case "ENTRYPOINT", "CMD":
			var words []string
			if err := json.Unmarshal([]byte(rest), &words); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			i.command = append(i.command, words...)
		}
	}
}

// install copies a program of this machine, with what it is linked to.
func (i image) install(t *testing.T, program string) {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(i.root, program)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, content, 0o755); err != nil {
		t.Fatal(err)
	}
	i.libraries(t, program)
}

var libraryPath = regexp.MustCompile(`/\S+\.so\S*`)

func (i image) libraries(t *testing.T, program string) {
	t.Helper()
	list, _ := exec.Command("ldd", program).Output() // fails for a static program
	for _, library := range libraryPath.FindAllString(string(list), -1) {
		if _, err := os.Stat(filepath.Join(i.root, library)); err == nil {
			continue
		}
		content, err := os.ReadFile(library)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(i.root, library)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs a command in the image until the test ends; then it has to end on SIGTERM, with success unless
// it is a shell's. Without capabilities it has those of a container whose securityContext drops ALL.
func (i image) start(t *testing.T, capabilities bool, command ...string) {
	t.Helper()
	path := command[0]
	if !strings.Contains(path, "/") {
		path = "/usr/bin/" + path
	}
	if !capabilities {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("setpriv (util-linux) is not installed")
		}
		i.install(t, setpriv)
		command = append([]string{setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", path},
			command[1:]...)
		path = setpriv
	}
	c := exec.Command(path, command[1:]...)
	c.Path = path
	c.Err = nil
	c.Dir = i.workdir
	c.Env = []string{"PATH=/usr/bin:/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		own := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings, c.SysProcAttr.GidMappings = own(os.Getuid()), own(os.Getgid())
	}
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	c.WaitDelay = kubelettest.Limit
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-c.Process.Pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		var ended *exec.ExitError
		if err := c.Wait(); err != nil && !(path == "/bin/sh" && errors.As(err, &ended)) {
			t.Errorf("%q: %v", command, err)
		}
		if t.Failed() {
			t.Logf("%q:\n%s", command, &log)
		}
	})
}

// TestCommandsOfAMD starts the plugin as AMD's manifests do (ROCm/k8s-device-plugin: k8s-ds-amdgpu-dp.yaml,
// k8s-ds-amdgpu-dp-health.yaml, helm/amd-gpu) and as its GPU operator does (ROCm/gpu-operator:
// internal/plugin/plugin.go).
func TestCommandsOfAMD(t *testing.T) {
	i := newImage(t, "oci-mi300x-derived")
	for _, c := range []struct {
		row, name    string
		capabilities bool
		// the image's where there is none; in /root, which manifests name and which is the image's
		command []string
	}{
		{"amd/image-shape", "manifest", true, nil},
		{"amd/helm-unprivileged", "chart", false, nil},
		{"amd/flag-pulse", "manifest with health", true,
			[]string{"./k8s-device-plugin", "-logtostderr=true", "-stderrthreshold=INFO", "-pulse=10"}},
		{"amd/image-shape", "operator", true,
			[]string{"/bin/sh", "-c", "./k8s-device-plugin -logtostderr=true -stderrthreshold=INFO -v=5 -pulse=30"}},
		{"amd/flag-driver-type", "operator with arguments", true,
			[]string{
				"/bin/sh", "-c",
				"./k8s-device-plugin -logtostderr=true -stderrthreshold=INFO -v=5 -pulse=30 -driver_type=container " +
					"-resource_naming_strategy=single",
			}},
	} {
		t.Run(c.row+"/"+c.name, func(t *testing.T) {
			kubelet := kubelettest.Start(t, filepath.Join(i.root, "var/lib/kubelet"))
			if c.command == nil {
				c.command = i.command
			}
			i.start(t, c.capabilities, c.command...)
			plugin := kubelettest.Await(t, kubelet.Plugins)
			if got := plugin.Request.GetResourceName(); got != "amd.com/gpu" {
				t.Errorf("registered %s", got)
			}
			devices := kubelettest.Await(t, plugin.Lists)
			if len(devices) != 8 || devices[0].GetHealth() != v1beta1.Healthy {
				t.Errorf("devices %v", devices)
			}
			if answer, err := plugin.Allocate(t.Context(), devices[0].GetID()); err != nil ||
				len(answer.GetDevices()) != 3 {
				t.Errorf("allocate: %v, %v", answer, err)
			}
		})
	}
}
