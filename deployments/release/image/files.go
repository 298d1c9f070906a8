// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
)

// file is a file of the image: a copy of a local file, a text, or a link.
type file struct {
	name string // without the leading slash
	from string // path here
	text string
	link string
}

// applets are the programs in busybox, as few as possible. Wrappers of the stock plugins (the NVIDIA and AMD
// GPU operators) call sh, cat, grep, lsmod and sleep; the Jobs in deployments/examples env, ls and sort;
// people who inspect devices readlink.
var applets = []string{"sh", "cat", "grep", "lsmod", "sleep", "env", "ls", "sort", "readlink"}

// contents returns the layers of the image: the base, and the programs.
func contents(bin, busybox string) (layers [][]file, err error) {
	base, err := baseFiles(bin, busybox)
	if err != nil {
		return nil, err
	}
	return [][]file{base, programFiles(bin)}, nil
}

// baseFiles returns the base of the programs: a shell and, for dynamically linked programs, glibc.
func baseFiles(bin, busybox string) ([]file, error) {
	switch interpreter, err := loader(busybox); {
	case err != nil:
		return nil, fmt.Errorf("find a shell: %w; install the Debian package busybox-static, "+
			"or name a static busybox with --busybox", err)
	case interpreter != "":
		return nil, fmt.Errorf("find a shell: %s is no static program; install the Debian package busybox-static, "+
			"or name a static busybox with --busybox", busybox)
	}
	if err := sameArchitecture(busybox, filepath.Join(bin, "tandem-gpu")); err != nil {
		return nil, err
	}
	files := []file{{name: "bin/busybox", from: busybox}}
	for _, applet := range applets {
		files = append(files, file{name: "bin/" + applet, link: "busybox"})
	}
	// Mount points on a read-only root; passwd has the owner of the files.
	files = append(files, file{name: "etc/passwd", text: "root:x:0:0:root:/root:/bin/sh\n"})
	for _, program := range programFiles(bin) {
		if program.from == "" {
			continue
		}
		libraries, err := glibc(program.from)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w; run make build", program.from, err)
		}
		if len(libraries) > 0 {
			return append(files, libraries...), nil
		}
	}
	return files, nil
}

//go:embed entrypoint.sh
var entrypointScript string

// programFiles returns the programs under their own names, and under the names by which operators call the
// stock plugins.
func programFiles(bin string) []file {
	return []file{
		{name: "usr/bin/tandem", from: filepath.Join(bin, "tandem")},
		{name: "usr/bin/tandem-gpu", from: filepath.Join(bin, "tandem-gpu")},
		{name: "usr/bin/tandem-rdma", from: filepath.Join(bin, "tandem-rdma")},
		{name: "usr/bin/tandem-dra", from: filepath.Join(bin, "tandem-dra")},
		// NVIDIA's GPU operator and chart take both from one image: config-manager signals the process of this
		// name, and GPU feature discovery, after a change of the node's configuration.
		{name: "usr/bin/config-manager", from: filepath.Join(bin, "config-manager")},
		{name: "usr/bin/nvidia-device-plugin", link: "tandem-gpu"},
		// AMD's GPU operator, and its manifest with health: "./k8s-device-plugin" in /root.
		{name: "root/k8s-device-plugin", link: "../usr/bin/tandem-gpu"},
		// Called at the end of the scripts in the SR-IOV plugin's image and in AMD's.
		{name: "usr/bin/sriovdp", link: "tandem-rdma"},
		// NVIDIA's network operator, for the shared RDMA plugin.
		{name: "bin/k8s-rdma-shared-dp", link: "../usr/bin/tandem-rdma"},
		// For manifests without a command.
		{name: "entrypoint.sh", text: entrypointScript},
	}
}

// content returns the content of the file.
func (f file) content() ([]byte, error) {
	if f.from == "" {
		return []byte(f.text), nil
	}
	return os.ReadFile(f.from)
}

// mode of files: all but texts for reading are programs and libraries.
func (f file) mode() os.FileMode {
	if f.name == "etc/passwd" {
		return 0o644
	}
	return 0o755
}

// folders returns the folders of the files, parents first.
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

// unpacked returns the size of all files.
func unpacked(layers ...[]file) int64 {
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
