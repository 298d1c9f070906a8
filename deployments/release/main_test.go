// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"

	"github.com/tandem-k8s/tandem/version"
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
	dir := t.TempDir()
	compile := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/", "./cmd/tandem")
	compile.Dir, compile.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, name := range programs[1:] {
		ready(t, os.Link(filepath.Join(dir, "tandem"), filepath.Join(dir, name)))
	}
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
	make := func() string {
		out := t.TempDir()
		ready(t, os.WriteFile(filepath.Join(out, "release.yaml"), []byte("kind: A\n"), 0o600)) // was there before
		ready(t, run([]string{"--bin", programs, "--image", image, "--out", out}, t.Output()))
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
		"tandem_" + own + ".spdx.json", krewFile,
		"tandem_" + debian + "_" + runtime.GOARCH + ".deb", "tandem-" + debian + "-1." + rpm + ".rpm",
	} {
		sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(first[name]), name)
		if first[name] == nil || !strings.Contains(string(first[sumsFile]), sum) {
			t.Errorf("there is no %s, or it is not summed up:\n%s", name, first[sumsFile])
		}
	}
	if len(first) != 7 || strings.Count(string(first[sumsFile]), "\n") != 6 {
		t.Errorf("%d files, with the sums\n%s", len(first), first[sumsFile])
	}
	archive := first["tandem_"+own+"_linux_"+runtime.GOARCH+".tar.gz"]
	checkArchive(t, archive, own)
	if sum := fmt.Sprintf("%x", sha256.Sum256(archive)); !strings.Contains(string(first[krewFile]), sum) {
		t.Errorf("the manifest for Krew has not the checksum %s:\n%s", sum, first[krewFile])
	}
	checkSBOM(t, first["tandem_"+own+".spdx.json"], filepath.Join(programs, "tandem"))
}

func checkArchive(t *testing.T, archive []byte, own string) {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	ready(t, err)
	found := map[string]string{}
	ready(t, each(unzipped, func(name string, r io.Reader) error {
		text, err := io.ReadAll(r)
		found[name] = string(text)
		return err
	}))
	for name, want := range map[string]string{
		"tandem": "\x7fELF", "LICENSE": "Apache License", "CHANGELOG.md": "# Changelog",
		"completions/tandem.bash": "bash completion", "completions/_tandem": "#compdef tandem",
		"completions/tandem.fish": "fish completion",
		"man/tandem.1":            "\"Tandem " + own + "\"\n.SH NAME",
	} {
		if !strings.Contains(found[name], want) {
			t.Errorf("%s in the archive has no %q", name, want)
		}
	}
	if page := found["man/tandem.1"]; strings.Count(page, ".SH \"TANDEM ") < 8 {
		t.Errorf("the manual leaves out commands:\n%s", page)
	}
}

func checkSBOM(t *testing.T, text []byte, program string) {
	t.Helper()
	document, err := spdxjson.Read(bytes.NewReader(text))
	ready(t, err)
	found := map[string]string{}
	for _, p := range document.Packages {
		found[p.PackageName] = p.PackageVersion
	}
	info, err := buildinfo.ReadFile(program)
	ready(t, err)
	want := map[string]string{
		"tandem": version.Of(nil), "busybox": "1.35.0 (Debian 1:1.35.0-4)", "stdlib": runtime.Version()[2:],
	}
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
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--bin", empty, "--out", empty}, "run make build"},
		{[]string{"--bin", bin(t), "--out", t.TempDir(), "--root", empty}, "read LICENSE"},
		{[]string{"--bin", bin(t), "--out", t.TempDir(), "--image", empty}, "read the image"},
	} {
		if err := run(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("release %q: %v, want %q", c.args, err, c.want)
		}
	}
}
