// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/macho"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bin is a folder with tandem, which is the other programs too.
func bin(t *testing.T) string {
	t.Helper()
	dir := compiled(t, "linux", runtime.GOARCH)
	for _, p := range (images{}).products() {
		for _, name := range p.programs {
			if name != "tandem" && name != "tandem-lab" {
				ready(t, os.Link(filepath.Join(dir, "tandem"), filepath.Join(dir, name)))
			}
		}
	}
	return dir
}

// compiled is a folder with tandem, which is tandem-lab too, for a platform.
func compiled(t *testing.T, system, arch string) string {
	t.Helper()
	dir := t.TempDir()
	compile := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-buildvcs=false", "-o", dir+"/",
		"./cmd/tandem")
	compile.Dir, compile.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build for %s on %s: %v\n%s", system, arch, err, out)
	}
	ready(t, os.Link(filepath.Join(dir, "tandem"), filepath.Join(dir, "tandem-lab")))
	return dir
}

// image is a tarball with one layer, of which busybox is a file.
func image(t *testing.T) string {
	t.Helper()
	layer := compressed(tarOf(t, "bin/busybox", "BusyBox v1.35.0 (Debian 1:1.35.0-4) multi-call binary"))
	file := filepath.Join(t.TempDir(), "image.tar")
	ready(t, os.WriteFile(file, tarOf(t, "blobs/sha256/0123", string(layer)), 0o600))
	return file
}

func tarOf(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	ready(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content))}))
	_, err := io.WriteString(w, content)
	ready(t, err)
	ready(t, w.Close())
	return out.Bytes()
}

// content are the files of a folder by name.
func content(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	ready(t, err)
	files := map[string][]byte{}
	for _, entry := range entries {
		files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name()))
		ready(t, err)
	}
	return files
}

// TestRelease: what is written is named by the version, summed up, and the same a second time.
func TestRelease(t *testing.T) {
	programs, image := bin(t), image(t)
	bins := strings.Join([]string{programs, compiled(t, "darwin", "amd64"), compiled(t, "darwin", "arm64")}, ",")
	make := func() string {
		out := t.TempDir()
		ready(t, os.WriteFile(filepath.Join(out, "release.yaml"), []byte("kind: A\n"), 0o600)) // was there before
		ready(t, run([]string{"--bin", bins, "--image", image, "--out", out}, t.Output()))
		return out
	}
	dir := make()
	first, second := content(t, dir), content(t, make())
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("made twice %s has other bytes", name)
		}
	}
	own, debian := version.Of(nil), strings.Replace(version.Of(nil), "-", "~", 1)
	rpm := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, name := range []string{
		"release.yaml", "tandem_" + own + "_linux_" + runtime.GOARCH + ".tar.gz",
		"tandem_" + own + "_darwin_amd64.tar.gz", "tandem_" + own + "_darwin_arm64.tar.gz",
		"tandem_" + own + ".spdx.json", "tandem-scheduler_" + own + ".spdx.json", krewFile,
		"tandem_" + debian + "_" + runtime.GOARCH + ".deb", "tandem-" + debian + "-1." + rpm + ".rpm",
	} {
		sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(first[name]), name)
		if first[name] == nil || !strings.Contains(string(first[sumsFile]), sum) {
			t.Errorf("there is no %s, or it is not summed up:\n%s", name, first[sumsFile])
		}
	}
	if len(first) != 10 || strings.Count(string(first[sumsFile]), "\n") != 9 {
		t.Errorf("%d files, with the sums\n%s", len(first), first[sumsFile])
	}
	found := checkArchive(t, first["tandem_"+own+"_linux_"+runtime.GOARCH+".tar.gz"], own, "\x7fELF")
	for _, name := range tried {
		if !strings.HasPrefix(found[name], "\x7fELF") {
			t.Errorf("the archive for Linux has no %s", name)
		}
	}
	for arch, cpu := range map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64} {
		archive := first["tandem_"+own+"_darwin_"+arch+".tar.gz"]
		checkMac(t, checkArchive(t, archive, own, "\xcf\xfa\xed\xfe")["tandem"], cpu)
	}
	checkKrew(t, first, own)
	program := filepath.Join(programs, "tandem")
	checkSBOM(t, first["tandem_"+own+".spdx.json"], program, map[string]string{
		"tandem": own, "busybox": "1.35.0 (Debian 1:1.35.0-4)", "stdlib": runtime.Version()[2:],
	})
	checkSBOM(t, first["tandem-scheduler_"+own+".spdx.json"], program, map[string]string{
		"tandem-scheduler": own, "busybox": "", "stdlib": runtime.Version()[2:],
	})
}

// checkSBOM expects the components and their versions, "" for none, and the modules of a program.
func checkSBOM(t *testing.T, text []byte, program string, want map[string]string) {
	t.Helper()
	document, err := spdxjson.Read(bytes.NewReader(text))
	ready(t, err)
	found := map[string]string{}
	for _, p := range document.Packages {
		found[p.PackageName] = p.PackageVersion
	}
	info, err := buildinfo.ReadFile(program)
	ready(t, err)
	for _, module := range info.Deps {
		want[module.Path] = module.Version
	}
	for name, version := range want {
		if found[name] != version {
			t.Errorf("the SBOM has %s %q, want %s", name, found[name], version)
		}
	}
	if len(info.Deps) < 10 || len(document.Relationships) != len(document.Packages) {
		t.Errorf("%d packages and %d relationships", len(document.Packages), len(document.Relationships))
	}
}

func TestErrors(t *testing.T) {
	empty, programs := t.TempDir(), bin(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--bin", empty, "--out", empty}, "run make build"},
		{[]string{"--bin", programs, "--out", t.TempDir(), "--root", empty}, "read LICENSE"},
		{[]string{"--bin", programs, "--out", t.TempDir(), "--image", empty}, "read the image"},
	} {
		if err := run(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("release %q: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestOfModule: a replaced module is named as it was built, and never by a path of the machine that built it.
func TestOfModule(t *testing.T) {
	r := release{version: "0.1.0-dev+0123"}
	for _, c := range []struct {
		module debug.Module
		want   part
	}{
		{
			debug.Module{Path: "example.com/Upper", Version: "v2.0.0+incompatible"},
			part{"example.com/Upper", "v2.0.0+incompatible", unknown,
				"pkg:golang/example.com/upper@v2.0.0%2Bincompatible"},
		},
		{
			debug.Module{Path: "k8s.io/api", Version: "v0.0.0",
				Replace: &debug.Module{Path: "k8s.io/api", Version: "v0.37.1"}},
			part{"k8s.io/api", "v0.37.1", unknown, "pkg:golang/k8s.io/api@v0.37.1"},
		},
		{
			debug.Module{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "../..", Version: "(devel)"}},
			part{module, r.version, "Apache-2.0", "pkg:golang/" + module + "@0.1.0-dev%2B0123"},
		},
	} {
		if got := r.ofModule(&c.module); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.module.Path, got, c.want)
		}
	}
}
