package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// soNames are all of glibc that a GPU vendor's library asks for once a program has opened it
// (libnvidia-ml.so.1), which the program itself does not tell.
var soNames = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// glibc returns this machine's glibc for a program that is linked with it, none for a static one. The files
// stay at their places: the loader searches where it was told when it was built.
func glibc(program string) ([]file, error) {
	interpreter, err := loader(program)
	if err != nil || interpreter == "" {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(interpreter)
	if err != nil {
		return nil, fmt.Errorf("find the loader: %w", err)
	}
	files := []file{{name: strings.TrimPrefix(interpreter, "/"), from: real}}
	for _, name := range soNames {
		library, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(real), name))
		if err != nil {
			return nil, fmt.Errorf("find glibc: %w", err)
		}
		folder := strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(real), "/usr"), "/")
		files = append(files, file{name: folder + "/" + name, from: library})
	}
	return files, nil
}

// loader is the program's interpreter, "/lib64/ld-linux-x86-64.so.2"; "" for a static program.
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

// architecture is what GOARCH calls the machine that a program is for.
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
