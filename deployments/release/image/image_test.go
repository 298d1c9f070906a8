// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// packImage runs the command and returns the tarball and what was printed.
func packImage(t *testing.T, bin, busybox string) (file, printed string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "image.tar")
	var out bytes.Buffer
	ready(t, run([]string{"--bin", bin, "--busybox", busybox, "--tag", "registry.example/tandem:v1",
		"--tarball", file}, &out))
	return file, strings.ReplaceAll(out.String(), file, "FILE")
}

func TestTwoBuildsAreOne(t *testing.T) {
	bin, fresh := programs(t), freshPrograms(t)
	first, printed := packImage(t, bin, standIn(bin))
	second, again := packImage(t, fresh, standIn(fresh))
	if printed != again {
		t.Errorf("two builds print\n%sand\n%s", printed, again)
	}
	a, errA := os.ReadFile(first)
	b, errB := os.ReadFile(second)
	ready(t, errors.Join(errA, errB))
	if !bytes.Equal(a, b) {
		t.Error("two builds differ")
	}
}

// TestTarball reads the tarball with the code by which others do.
func TestTarball(t *testing.T) {
	t.Attr("parity", "amd/image-shape")
	t.Attr("parity", "nvidia/image-shape")
	bin := programs(t)
	file, _ := packImage(t, bin, standIn(bin))
	image, err := tarball.ImageFromPath(file, nil)
	ready(t, err)
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	content, err := image.ConfigFile()
	ready(t, err)
	checkLabels(t, "the image", content.Config.Labels)
	// What manifests take for granted that name neither.
	if c := content.Config; c.User != "" && c.User != "0" || c.WorkingDir != "/root" || len(c.Cmd) > 0 {
		t.Errorf("user %q, folder %q, arguments %q; want root in /root and none", c.User, c.WorkingDir, c.Cmd)
	}
	// With it NVIDIA's runtime gives the driver's library to a container that names GPUs; the image names none.
	const want = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
	if env := content.Config.Env; !slices.Contains(env, want) || asksForGPUs(env) {
		t.Errorf("the environment %q lacks %s, or asks for GPUs", env, want)
	}
	root := t.TempDir()
	unpack(t, file, filepath.Join(root, "oci"))
	oci, err := layout.ImageIndexFromPath(filepath.Join(root, "oci"))
	ready(t, err)
	if err := validate.Index(oci); err != nil {
		t.Error(err)
	}
	index, err := os.ReadFile(filepath.Join(root, "oci/index.json"))
	ready(t, err)
	if !strings.Contains(string(index), `"io.containerd.image.name": "registry.example/tandem:v1"`) {
		t.Errorf("index.json does not name the image for containerd:\n%s", index)
	}
}

// checkLabels: an image says what it is, and so does the index of two, which is all that a registry's page
// shows.
func checkLabels(t *testing.T, what string, labels map[string]string) {
	t.Helper()
	for _, key := range []string{"title", "source", "licenses", "version"} {
		if labels["org.opencontainers.image."+key] == "" {
			t.Errorf("%s has no label %s: %v", what, key, labels)
		}
	}
	if labels[labelVersion] != version.Of(nil) {
		t.Errorf("%s is of version %s, the programs of %s", what, labels[labelVersion], version.Of(nil))
	}
}

// unpack unpacks a tarball into a folder.
func unpack(t *testing.T, file, dir string) {
	t.Helper()
	ready(t, os.MkdirAll(dir, 0o755))
	if out, err := exec.Command("tar", "-xf", file, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", file, err, out)
	}
}

// unpackImage unpacks the layers of an image one over the other, as a runtime does. Files keep their owners.
func unpackImage(t *testing.T, bin, busybox, root string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("chroot is root's")
	}
	file, _ := packImage(t, bin, busybox)
	image, err := tarball.ImageFromPath(file, nil)
	ready(t, err)
	layers, err := image.Layers()
	ready(t, err)
	for i, layer := range layers {
		content, err := layer.Uncompressed()
		ready(t, err)
		packed := filepath.Join(t.TempDir(), fmt.Sprint(i))
		out, err := os.Create(packed)
		ready(t, err)
		_, err = io.Copy(out, content)
		ready(t, errors.Join(err, out.Close(), content.Close()))
		unpack(t, packed, root)
	}
}

// in runs a command in the image.
func in(root, dir string, args ...string) string {
	command := exec.Command("chroot", append([]string{root}, args...)...)
	command.Env = environment
	if dir != "" {
		command.Args = []string{"chroot", root, "sh", "-c", "cd " + dir + " && " + strings.Join(args, " ")}
	}
	out, _ := command.CombinedOutput() // what it prints is what is looked at
	return string(out)
}

func TestContainerdName(t *testing.T) {
	for tag, want := range map[string]string{
		"tandem:e2e":                 "docker.io/library/tandem:e2e",
		"team/tandem:v1":             "docker.io/team/tandem:v1",
		"registry.example/tandem:v1": "registry.example/tandem:v1",
	} {
		reference, err := name.NewTag(tag)
		ready(t, err)
		if got := containerdName(reference); got != want {
			t.Errorf("%s is %s to containerd, want %s", tag, got, want)
		}
	}
}

// TestAsOperatorsCallIt runs the programs from the image's root in the ways in which the stock plugins'
// operators and manifests start theirs.
func TestAsOperatorsCallIt(t *testing.T) {
	t.Attr("parity", "amd/image-shape")
	t.Attr("parity", "nvidia/image-shape")
	t.Attr("parity", "sriov/flags-entrypoint")
	root := t.TempDir()
	unpackImage(t, programs(t), shell(t), root)
	// As the NVIDIA GPU operator mounts it; see assets/state-device-plugin/0400_configmap.yaml there.
	script := "#!/bin/sh\nuntil [ -f /run/ready ]; do echo waiting; sleep 5; done\nset -o allexport\n" +
		"cat /run/ready\n. /run/ready\nexec nvidia-device-plugin --help\n"
	for name, content := range map[string]string{
		"bin/entrypoint.sh": script, "run/ready": "NVIDIA_DRIVER_ROOT=/driver-root\n",
	} {
		write(t, filepath.Join(root, name), content)
	}
	for _, test := range []struct {
		dir  string
		args []string
		want string
	}{
		{"", []string{"tandem", "--help"}, "Usage:\n  tandem "},
		{"", []string{"tandem-gpu", "--help"}, "Usage:\n  tandem-gpu "},
		{"", []string{"tandem-rdma", "--help"}, "Usage:\n  tandem-rdma "},
		{"", []string{"tandem-dra", "--help"}, "Usage:\n  tandem-dra "},
		{"", []string{"tandem-dra", "--probe=readyz"}, "give --health-probe-bind-address too"},
		{"", []string{"nvidia-device-plugin", "--help"}, "Usage:\n"},
		{"", []string{"/bin/sh", "-c", "/bin/entrypoint.sh"}, "NVIDIA_DRIVER_ROOT=/driver-root\n"},
		{"", []string{"/bin/sh", "-c", "/bin/entrypoint.sh"}, "Usage:\n"},
		{"/root", []string{"./k8s-device-plugin", "--help"}, "Usage:\n"},
		{"",
			[]string{
				"/entrypoint.sh", "--log-dir=sriovdp", "--log-level=10", "--config-file=/etc/pcidp/config.json", "--help",
			}, "Usage:\n  tandem-rdma "},
		{"", []string{"/entrypoint.sh", "--log-level=10", "--config-file=/a b/config.json"}, "/a b/config.json"},
		{"", []string{"/entrypoint.sh", "tandem", "--help"}, "Usage:\n  tandem "},
		{"", []string{"/entrypoint.sh"}, "tandem-gpu: "},
		{"", []string{"sh", "-c", "busybox mkdir /etc/pcidp; /entrypoint.sh; busybox rmdir /etc/pcidp"},
			"tandem-rdma: "},
		{"", []string{"sh", "-c", "busybox mkdir /k8s-rdma-shared-dev-plugin; /entrypoint.sh; " +
			"busybox rmdir /k8s-rdma-shared-dev-plugin"}, "tandem-rdma: "},
		{"", []string{"/usr/bin/sriovdp", "-v", "10", "--logtostderr", "--help"}, "Usage:\n  tandem-rdma "},
		{"", []string{"/bin/k8s-rdma-shared-dp", "--help"}, "Usage:\n  tandem-rdma "},
		{"", []string{"sh", "-c", "echo a; echo b | cat | grep b; sleep 0; cp /etc/passwd /copy; ls /copy; " +
			"env | sort; readlink /bin/sh"},
			"a\nb\n/copy\nGOMAXPROCS=2\nNVIDIA_DRIVER_CAPABILITIES=compute,utility\n" +
				"PATH=/usr/bin:/bin\nPWD=/\nSHLVL=1\nbusybox\n"},
		{"", []string{"sh", "-c", "test -x /bin/lsmod && ls -l /bin/lsmod"}, "/bin/lsmod -> busybox\n"},
	} {
		if got := in(root, test.dir, test.args...); !strings.Contains(got, test.want) {
			t.Errorf("%q prints\n%swithout %q", test.args, got, test.want)
		}
	}
}

// TestGlibc packs a program that is linked with glibc, as one that opens a GPU vendor's library is.
func TestGlibc(t *testing.T) {
	bin := t.TempDir()
	ready(t, os.CopyFS(bin, os.DirFS(programs(t))))
	source := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module linked\n",
		"main.go": "package main\n\n// #include <stdio.h>\n" +
			"// static void say() { puts(\"linked\"); fflush(stdout); }\nimport \"C\"\n\nfunc main() { C.say() }\n",
	} {
		ready(t, os.WriteFile(filepath.Join(source, name), []byte(content), 0o600))
	}
	compile := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(bin, "tandem-gpu"), ".")
	compile.Dir, compile.Env = source, append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	root := t.TempDir()
	unpackImage(t, bin, shell(t), root)
	if got := in(root, "", "nvidia-device-plugin"); got != "linked\n" {
		t.Errorf("a program that is linked with glibc prints %q", got)
	}
}

func TestErrors(t *testing.T) {
	empty, bin := t.TempDir(), programs(t)
	static := standIn(bin)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--bin", empty, "--busybox", static, "--tarball", empty + "/i.tar"}, "run make build"},
		{[]string{"--bin", bin, "--busybox", empty + "/none"}, "install the Debian package busybox-static"},
		{[]string{"--bin", bin, "--busybox", "/bin/true"}, "/bin/true is not static"},
		{[]string{"--bin", bin, "--busybox", static, "--root", empty}, "file exists"},
		{[]string{"--bin", bin + "," + bin, "--busybox", static + "," + static, "--root", empty + "/root"},
			"want one with --root"},
		{[]string{"--root", empty + "/root", "--tarball", empty + "/i.tar"}, "without --scheduler and --tarball"},
		{[]string{"--root", empty + "/root", "--scheduler", static}, "without --scheduler and --tarball"},
	} {
		if err := run(test.args, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("image %q: %v, want %q", test.args, err, test.want)
		}
	}
}

// TestScheduler packs a program in the scheduler's place: to build that takes minutes.
func TestScheduler(t *testing.T) {
	to := filepath.Join(t.TempDir(), "image.tar")
	var out bytes.Buffer
	ready(t, run([]string{"--scheduler", standIn(programs(t)), "--tag", "example/tandem-scheduler:v1",
		"--tarball", to}, &out))
	if !strings.Contains(out.String(), "example/tandem-scheduler:v1@sha256:") {
		t.Errorf("got %s", &out)
	}
	image, err := tarball.ImageFromPath(to, nil)
	ready(t, err)
	config, err := image.ConfigFile()
	ready(t, err)
	checkLabels(t, "the scheduler's image", config.Config.Labels)
	if got := config.Config; got.User != "65532" || got.Entrypoint[0] != "tandem-scheduler" {
		t.Errorf("got %+v", got)
	}
}

func TestSchedulerOfTwoArchitectures(t *testing.T) {
	own, other, to := programs(t), foreign(t), filepath.Join(t.TempDir(), "image.tar")
	ready(t, run([]string{
		"--scheduler", filepath.Join(own, "tandem") + "," + filepath.Join(other, "tandem"),
		"--tag", "registry.example/tandem-scheduler:v1", "--tarball", to,
	}, t.Output()))
	checkArchitectures(t, to, "registry.example/tandem-scheduler:v1")
}
