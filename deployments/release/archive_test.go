// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/macho"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// checkArchive checks the files of an archive and returns their content by name.
func checkArchive(t *testing.T, archive []byte, own, magic string) map[string]string {
	t.Helper()
	found := unpacked(t, archive)
	for name, want := range map[string]string{
		"tandem": magic, "tandem-lab": magic, "LICENSE": "Apache License", "CHANGELOG.md": "# Changelog",
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
	return found
}

// unpacked is the content of an archive's files by name. Krew rejects an archive with a link (extractTARGZ in
// internal/download/downloader.go of kubernetes-sigs/krew).
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	ready(t, err)
	found := map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		ready(t, err)
		if header.Typeflag != tar.TypeReg {
			t.Errorf("Krew cannot unpack %s, of type %c", header.Name, header.Typeflag)
		}
		text, err := io.ReadAll(r)
		ready(t, err)
		found[header.Name] = string(text)
	}
}

// checkMac expects a program that a Mac with this processor starts. On arm64 macOS starts only programs with
// a signature; Go's linker adds one without an identity.
func checkMac(t *testing.T, program string, cpu macho.Cpu) {
	t.Helper()
	const codeSignature = 0x1d // LC_CODE_SIGNATURE
	file, err := macho.NewFile(strings.NewReader(program))
	ready(t, err)
	signed := false
	for _, load := range file.Loads {
		signed = signed || file.ByteOrder.Uint32(load.Raw()) == codeSignature
	}
	if file.Cpu != cpu || file.Type != macho.TypeExec || cpu == macho.CpuArm64 && !signed {
		t.Errorf("a program of type %v for %v, signed %t; want one for %v", file.Type, file.Cpu, signed, cpu)
	}
}

// krew is what Krew reads of a plugin's manifest (pkg/index/types.go of kubernetes-sigs/krew).
type krew struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             struct {
		Version, ShortDescription, Description, Caveats, Homepage string
		Platforms                                                 []struct {
			URI, SHA256, Bin string
			Files            []struct{ From, To string }
			Selector         struct{ MatchLabels map[string]string }
		}
	}
}

// checkKrew expects a platform for each archive, with the archive's checksum and files that are in it.
func checkKrew(t *testing.T, files map[string][]byte, own string) {
	t.Helper()
	var manifest krew
	ready(t, yaml.UnmarshalStrict(files[krewFile], &manifest))
	var got []string
	for _, p := range manifest.Spec.Platforms {
		platform := p.Selector.MatchLabels
		name := "tandem_" + own + "_" + platform["os"] + "_" + platform["arch"] + ".tar.gz"
		got = append(got, name)
		if sum := fmt.Sprintf("%x", sha256.Sum256(files[name])); p.SHA256 != sum || p.URI != download(own)+name {
			t.Errorf("krew.yaml downloads %s with the checksum %s, want %s with %s", p.URI, p.SHA256, name, sum)
		}
		inside, installed := unpacked(t, files[name]), map[string]bool{}
		for _, f := range p.Files {
			if inside[f.From] == "" || f.To != "." {
				t.Errorf("krew.yaml copies %s to %s: not in %s", f.From, f.To, name)
			}
			installed[f.From] = true
		}
		if !installed[p.Bin] || !installed["LICENSE"] {
			t.Errorf("krew.yaml installs %v from %s without %s", installed, name, p.Bin)
		}
	}
	want := []string{
		"tandem_" + own + "_linux_" + runtime.GOARCH + ".tar.gz",
		"tandem_" + own + "_darwin_amd64.tar.gz", "tandem_" + own + "_darwin_arm64.tar.gz",
	}
	if !slices.Equal(got, want) || manifest.Kind != "Plugin" || manifest.Metadata.Name != "tandem" ||
		manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" ||
		manifest.Spec.Version != "v"+own || manifest.Spec.ShortDescription == "" {
		t.Errorf("krew.yaml is for %q, want %q: %+v", got, want, manifest)
	}
}
