// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// soNames are the glibc libraries that a GPU vendor's library (libnvidia-ml.so.1) needs when a program opens
// it. The program itself does not list them.
var soNames = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// crossFolders are Debian's folders of glibc for another architecture, for cross compilers, with the folder
// that the loader in them searches: that of the architecture's own machines.
var crossFolders = map[string]struct{ from, to string }{
	"amd64": {"/usr/x86_64-linux-gnu/lib", "lib/x86_64-linux-gnu"},
	"arm64": {"/usr/aarch64-linux-gnu/lib", "lib/aarch64-linux-gnu"},
}

// glibc returns this machine's glibc for a dynamically linked program, nothing for a static one. The files
// keep their paths, which are compiled into the loader.
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

// findLoader returns the path of a program's loader on this machine, and the loader's folder of libraries.
func findLoader(program, interpreter string) (real, folder string, err error) {
	arch, err := architecture(program)
	if err != nil {
		return "", "", err
	}
	if real, err = filepath.EvalSymlinks(interpreter); err == nil && arch == runtime.GOARCH {
		return real, strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(real), "/usr"), "/"), nil
	}
	cross := crossFolders[arch]
	real, err = filepath.EvalSymlinks(filepath.Join(cross.from, filepath.Base(interpreter)))
	return real, cross.to, err
}

// loader returns the program's interpreter, "/lib64/ld-linux-x86-64.so.2", or "" for a static program.
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
		return "", fmt.Errorf("read %s: it is for %s; want x86-64 or arm64", program, headers.Machine)
	}
}

// sameArchitecture returns an error if a shell and a program have different architectures.
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
