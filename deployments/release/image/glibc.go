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
	if real, err = filepath.EvalSymlinks(interpreter); err == nil && arch == runtime.GOARCH {
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
