// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// otherArch is an architecture that is not this machine's.
func otherArch() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

// foreign is a folder with programs for another architecture, under the names of ours.
func foreign(t *testing.T) string {
	t.Helper()
	bin, source := t.TempDir(), filepath.Join(t.TempDir(), "main.go")
	write(t, source, "package main\n\nfunc main() { println(\"hello\") }\n")
	program := filepath.Join(bin, "tandem")
	compile := exec.Command("go", "build", "-o", program, source)
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+otherArch())
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, name := range []string{"tandem-gpu", "tandem-rdma", "tandem-dra", "config-manager"} {
		ready(t, os.Link(program, filepath.Join(bin, name)))
	}
	return bin
}

// TestTwoArchitectures: nodes of either kind find their image under one name, whose tag is that of the
// version.
func TestTwoArchitectures(t *testing.T) {
	own, other, to := programs(t), foreign(t), filepath.Join(t.TempDir(), "image.tar")
	var out bytes.Buffer
	ready(t, run([]string{"--bin", own + "," + other, "--busybox", standIn(own) + "," + standIn(other),
		"--tag", "registry.example:5000/tandem", "--tarball", to}, &out))
	name := "registry.example:5000/tandem:" + strings.ReplaceAll(version.Of(nil), "+", "_")
	if !strings.Contains(out.String(), name+"@sha256:") {
		t.Errorf("printed %s, want %s", &out, name)
	}
	checkArchitectures(t, to, name)
}

// checkArchitectures: a tarball has one image for each architecture under a name.
func checkArchitectures(t *testing.T, file, name string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "oci")
	unpack(t, file, dir)
	outer, err := layout.ImageIndexFromPath(dir)
	ready(t, err)
	ready(t, validate.Index(outer))
	named, err := outer.IndexManifest()
	ready(t, err)
	if len(named.Manifests) != 1 || named.Manifests[0].Annotations["io.containerd.image.name"] != name {
		t.Fatalf("the tarball names %v", named.Manifests)
	}
	index, err := outer.ImageIndex(named.Manifests[0].Digest)
	ready(t, err)
	manifest, err := index.IndexManifest()
	ready(t, err)
	checkLabels(t, "the index", manifest.Annotations)
	var found []string
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		ready(t, err)
		config, err := image.ConfigFile()
		ready(t, err)
		if !m.Platform.Equals(v1.Platform{OS: "linux", Architecture: config.Architecture}) {
			t.Errorf("an image for %s is said to be for %s", config.Architecture, m.Platform)
		}
		found = append(found, config.Architecture)
	}
	if strings.Join(found, " ") != runtime.GOARCH+" "+otherArch() {
		t.Errorf("images for %v", found)
	}
}

func TestArchitecturesApart(t *testing.T) {
	own, other := programs(t), foreign(t)
	for _, c := range []struct{ bin, busybox, want string }{
		{other, standIn(own), "name the busybox of Debian's busybox-static:" + otherArch()},
		{own + "," + other, standIn(own), "--bin names 2 folders and --busybox 1 programs: want one for each"},
	} {
		err := run([]string{"--bin", c.bin, "--busybox", c.busybox, "--tarball", filepath.Join(t.TempDir(), "i")},
			t.Output())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestForeignGlibc packs a program that is linked with the glibc of another architecture, and starts it where
// there is an emulator.
func TestForeignGlibc(t *testing.T) {
	machine := map[string]string{"arm64": "aarch64", "amd64": "x86_64"}[otherArch()]
	cc, err := exec.LookPath(machine + "-linux-gnu-gcc")
	if err != nil {
		t.Skipf("no compiler for %s: %v", machine, err)
	}
	emulator, err := exec.LookPath("qemu-" + machine + "-static")
	if err != nil {
		t.Skipf("no emulator of %s: %v", machine, err)
	}
	bin, source := foreign(t), filepath.Join(t.TempDir(), "gpu.c")
	write(t, source, "#include <stdio.h>\nint main() { puts(\"linked\"); return 0; }\n")
	execute(t, cc, "-o", filepath.Join(bin, "tandem-gpu"), source)
	files, err := baseFiles(bin, standIn(bin))
	ready(t, err)
	root := t.TempDir()
	for _, f := range append(files, programFiles(bin)...) {
		content, err := f.content()
		ready(t, err)
		if f.link == "" {
			write(t, filepath.Join(root, f.name), string(content))
		}
	}
	execute(t, "cp", emulator, filepath.Join(root, "emulator"))
	out, err := exec.Command("chroot", root, "/emulator", "/usr/bin/tandem-gpu").CombinedOutput()
	if string(out) != "linked\n" {
		t.Errorf("a program that is linked with glibc prints %q, %v", out, err)
	}
}
