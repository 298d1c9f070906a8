// SPDX-License-Identifier: Apache-2.0

// Package amdsmi is a stand-in for libamd_smi without a GPU: a small C library with the functions that Tandem
// calls, whose answers come from a text file next to the library. [Describe] makes that file from a recorded
// machine, and [Build] the library, with the C compiler.
package amdsmi

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

//go:embed library/amdsmi.c
var source []byte

// Build builds a library with the answers of a description, for one test, and returns its path. It skips the
// test without a C compiler.
func Build(t testing.TB, description string) (library string) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("the stand-in for libamd_smi needs a C compiler, cc")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "amdsmi.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	library = filepath.Join(dir, "libamd_smi.so")
	output, err := exec.Command(compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
		"-o", library, file, "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, output)
	}
	Say(t, library, description)
	return library
}

// Say changes the answers of a library.
func Say(t testing.TB, library, description string) {
	t.Helper()
	next := library + ".next"
	if err := os.WriteFile(next, []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, library+".txt"); err != nil {
		t.Fatal(err)
	}
}

const nodes = "class/kfd/kfd/topology/nodes"

// Describe returns a description of a machine's sysfs. On purpose, it reads the KFD topology independently of
// the product's code.
func Describe(sys fs.FS) (string, error) {
	entries, err := fs.ReadDir(sys, nodes)
	if err != nil {
		return "", fmt.Errorf("describe machine: %w", err)
	}
	var text strings.Builder
	ids := map[string]uint64{} // of the GPUs, by the number of their node
	sockets := map[uint64]int{}
	for _, entry := range entries {
		p, err := properties(sys, path.Join(nodes, entry.Name(), "properties"))
		if err != nil {
			return "", err
		}
		if p["simd_count"] == 0 {
			continue
		}
		id := p["domain"]<<32 | p["location_id"]
		ids[entry.Name()] = id
		card := id &^ 7
		if _, known := sockets[card]; !known {
			sockets[card] = len(sockets)
		}
		address := fmt.Sprintf("%04x:%02x:%02x.0", p["domain"], p["location_id"]>>8&0xff, p["location_id"]>>3&0x1f)
		vram, err := fs.ReadFile(sys, path.Join("bus/pci/devices", address, "mem_info_vram_total"))
		if err != nil {
			vram = []byte("0")
		}
		fmt.Fprintf(&text, "processor %d %d %s 0\n", sockets[card], id, strings.TrimSpace(string(vram)))
	}
	for from, id := range ids {
		for _, kind := range []string{"io_links", "p2p_links"} {
			links, _ := fs.Glob(sys, path.Join(nodes, from, kind, "*", "properties"))
			for _, link := range links {
				p, err := properties(sys, link)
				if err != nil {
					return "", err
				}
				if to, ok := ids[strconv.FormatUint(p["node_to"], 10)]; ok {
					fmt.Fprintf(&text, "weight %d %d %d\n", id, to, p["weight"])
				}
			}
		}
	}
	return text.String(), nil
}

// properties reads a KFD properties file.
func properties(sys fs.FS, file string) (map[string]uint64, error) {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return nil, fmt.Errorf("describe machine: %w", err)
	}
	p := map[string]uint64{}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if p[fields[0]], err = strconv.ParseUint(fields[1], 10, 64); err != nil {
				return nil, fmt.Errorf("describe machine: %s: %w", file, err)
			}
		}
	}
	return p, nil
}
