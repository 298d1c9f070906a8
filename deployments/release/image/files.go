// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
)

// file is one file of the image: a copy of a local file, a text, or a symbolic link.
type file struct {
	name string // path without the leading slash
	from string // path of the local file; "" for none
	text string // content without a local file
	link string // target of a symbolic link; "" for none
}

// applets lists the busybox programs in the image. The wrappers of the stock plugins (NVIDIA and AMD GPU
// operators) call sh, cat, grep, lsmod and sleep; the Jobs in deployments/examples call env, ls and sort;
// their init container and that of the chart's test call cp; readlink is for people.
var applets = []string{"sh", "cat", "grep", "lsmod", "sleep", "env", "ls", "sort", "cp", "readlink"}

// contents returns the layers of the image: the base files and the programs.
func contents(bin, busybox string) (layers [][]file, err error) {
	base, err := baseFiles(bin, busybox)
	if err != nil {
		return nil, err
	}
	programs := programFiles(bin)
	licences, err := programLicences(paths(programs)...)
	return [][]file{base, append(programs, licences...)}, err
}

// baseFiles returns a shell and, if a program is dynamically linked, glibc.
func baseFiles(bin, busybox string) ([]file, error) {
	switch interpreter, err := loader(busybox); {
	case err != nil:
		return nil, fmt.Errorf("find a shell: %w; install the Debian package busybox-static, "+
			"or name a static busybox with --busybox", err)
	case interpreter != "":
		return nil, fmt.Errorf("find a shell: %s is not static; install the Debian package busybox-static, "+
			"or name a static busybox with --busybox", busybox)
	}
	if err := sameArchitecture(busybox, filepath.Join(bin, "tandem-gpu")); err != nil {
		return nil, err
	}
	files := []file{{name: "bin/busybox", from: busybox}}
	for _, applet := range applets {
		files = append(files, file{name: "bin/" + applet, link: "busybox"})
	}
	// passwd names root as the owner of files.
	files = append(files, file{name: "etc/passwd", text: "root:x:0:0:root:/root:/bin/sh\n"})
	licences, err := baseLicences()
	if err != nil {
		return nil, err
	}
	files = append(files, licences...)
	for _, program := range paths(programFiles(bin)) {
		libraries, err := glibc(program)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w; run make build", program, err)
		}
		if len(libraries) > 0 {
			return append(files, libraries...), nil
		}
	}
	return files, nil
}

//go:embed entrypoint.sh
var entrypointScript string

// programFiles returns the programs, with links for the names by which operators call the stock plugins.
func programFiles(bin string) []file {
	return []file{
		{name: "usr/bin/tandem", from: filepath.Join(bin, "tandem")},
		{name: "usr/bin/tandem-gpu", from: filepath.Join(bin, "tandem-gpu")},
		{name: "usr/bin/tandem-rdma", from: filepath.Join(bin, "tandem-rdma")},
		{name: "usr/bin/tandem-dra", from: filepath.Join(bin, "tandem-dra")},
		// NVIDIA's GPU operator and chart take both from one image: config-manager signals the process
		// nvidia-device-plugin, and GPU feature discovery, when the configuration of the node changes.
		{name: "usr/bin/config-manager", from: filepath.Join(bin, "config-manager")},
		{name: "usr/bin/nvidia-device-plugin", link: "tandem-gpu"},
		// AMD's GPU operator and health manifest: "./k8s-device-plugin" in /root.
		{name: "root/k8s-device-plugin", link: "../usr/bin/tandem-gpu"},
		// The entry points of the SR-IOV plugin's image and of AMD's.
		{name: "usr/bin/sriovdp", link: "tandem-rdma"},
		// NVIDIA's network operator, for the shared RDMA plugin.
		{name: "bin/k8s-rdma-shared-dp", link: "../usr/bin/tandem-rdma"},
		// Manifests without a command.
		{name: "entrypoint.sh", text: entrypointScript},
	}
}

// paths returns the paths of the local files.
func paths(files []file) (list []string) {
	for _, f := range files {
		if f.from != "" {
			list = append(list, f.from)
		}
	}
	return list
}

// content returns the content of the file.
func (f file) content() ([]byte, error) {
	if f.from == "" {
		return []byte(f.text), nil
	}
	return os.ReadFile(f.from)
}

// mode returns the permissions of the file. All files except passwd and licences are programs and libraries.
func (f file) mode() os.FileMode {
	if f.name == "etc/passwd" || strings.HasPrefix(f.name, licenceFolder) {
		return 0o644
	}
	return 0o755
}

// folders returns the directories of the files, parents first.
func folders(files []file) []string {
	seen := map[string]bool{}
	for _, f := range files {
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	var list []string
	for dir := range seen {
		list = append(list, dir)
	}
	sort.Strings(list)
	return list
}

// unpackedSize returns the size of all files in bytes.
func unpackedSize(layers ...[]file) int64 {
	var size int64
	for _, files := range layers {
		for _, f := range files {
			if content, err := f.content(); err == nil {
				size += int64(len(content))
			}
		}
	}
	return size
}

// writeRoot creates a directory with the files of the image and their permissions, for a build of the image
// with a container engine. An existing directory is an error.
func writeRoot(dir, bin, busybox string) error {
	layers, err := contents(bin, busybox)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // stale files must not get into the image
		return fmt.Errorf("make the root: %w", err)
	}
	files := slices.Concat(layers...)
	for _, folder := range folders(files) {
		if err := writeFolder(filepath.Join(dir, folder)); err != nil {
			return fmt.Errorf("write the folder %s: %w", folder, err)
		}
	}
	for _, f := range files {
		if err := f.write(filepath.Join(dir, f.name)); err != nil {
			return fmt.Errorf("write the file %s: %w", f.name, err)
		}
	}
	return nil
}

func writeFolder(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755) // regardless of the umask
}

func (f file) write(path string) error {
	if f.link != "" {
		return os.Symlink(f.link, path)
	}
	content, err := f.content()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, f.mode()); err != nil {
		return err
	}
	return os.Chmod(path, f.mode()) // regardless of the umask
}

// soNames lists the libraries of glibc that vendors' libraries such as libnvidia-ml.so.1 need. Programs open
// these at run time and do not list their needs.
var soNames = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// crossFolders maps another architecture to Debian's directory of its glibc for cross compilers (from), and
// to the directory in which its loader searches for libraries (to).
var crossFolders = map[string]struct{ from, to string }{
	"amd64": {"/usr/x86_64-linux-gnu/lib", "lib/x86_64-linux-gnu"},
	"arm64": {"/usr/aarch64-linux-gnu/lib", "lib/aarch64-linux-gnu"},
}

// glibc returns the glibc files that a program needs; none for a static program. The paths in the image are
// those of this machine, because the loader searches fixed directories.
func glibc(program string) ([]file, error) {
	interpreter, err := loader(program)
	if err != nil || interpreter == "" {
		return nil, err
	}
	real, folder, err := findLoader(program, interpreter)
	if err != nil {
		return nil, fmt.Errorf("find the loader: %w", err)
	}
	files := []file{{name: strings.TrimPrefix(interpreter, "/"), from: real}}
	for _, name := range soNames {
		library, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(real), name))
		if err != nil {
			return nil, fmt.Errorf("find glibc: %w", err)
		}
		files = append(files, file{name: folder + "/" + name, from: library})
	}
	return files, nil
}

// findLoader returns the path of a program's loader on this machine, and the directory in the image in which
// the loader searches for libraries.
func findLoader(program, interpreter string) (real, folder string, err error) {
	arch, err := architecture(program)
	if err != nil {
		return "", "", err
	}
	real, err = filepath.EvalSymlinks(interpreter)
	if err == nil && arch == runtime.GOARCH {
		return real, strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(real), "/usr"), "/"), nil
	}
	cross := crossFolders[arch]
	real, err = filepath.EvalSymlinks(filepath.Join(cross.from, filepath.Base(interpreter)))
	return real, cross.to, err
}

// loader returns the interpreter of a program, "/lib64/ld-linux-x86-64.so.2"; "" for a static program.
func loader(program string) (string, error) {
	binary, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer binary.Close()
	headers, err := elf.NewFile(binary)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", program, err)
	}
	for _, p := range headers.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err != nil {
				return "", fmt.Errorf("parse %s: %w", program, err)
			}
			return strings.TrimRight(string(name), "\x00"), nil
		}
	}
	return "", nil
}

// architecture returns the GOARCH of a program.
func architecture(program string) (string, error) {
	headers, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("read %s: %w; run make build", program, err)
	}
	defer headers.Close()
	switch headers.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("read %s: want x86-64 or arm64, not %s", program, headers.Machine)
	}
}

// sameArchitecture returns an error if busybox and a program have different architectures.
func sameArchitecture(busybox, program string) error {
	has, err := architecture(busybox)
	if err != nil {
		return err
	}
	want, err := architecture(program)
	if err != nil {
		return err
	}
	if has != want {
		return fmt.Errorf("%s is for %s and %s for %s: "+
			"name the busybox of Debian's busybox-static:%s with --busybox", busybox, has, program, want, want)
	}
	return nil
}
