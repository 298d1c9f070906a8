// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/docs"
)

// signed is what the workflow adds to the files of a release.
const signed = sumsFile + ".sigstore.json"

// TestDocumentedCommands: what the documents do with the files of the next release works on these. What would
// change this machine or ask another one is not run: the file that it names has to be there.
func TestDocumentedCommands(t *testing.T) {
	dir, program := t.TempDir(), bin(t)
	info, err := buildinfo.ReadFile(filepath.Join(program, "tandem"))
	ready(t, err)
	next := strings.TrimSuffix(version.Of(nil), "-dev")
	r := release{out: dir, root: "../..", version: next}
	for _, system := range []string{linux, "darwin"} {
		r.builds = append(r.builds, build{program, system, "amd64"}, build{program, system, "arm64"})
	}
	extras, err := r.extras()
	ready(t, err)
	for _, b := range r.builds {
		files, err := r.contents(b, extras)
		ready(t, err)
		ready(t, r.write(b, files))
	}
	_, err = checksums(dir)
	ready(t, err)
	ready(t, os.WriteFile(filepath.Join(dir, signed), nil, 0o600))
	workflow := readWorkflow(t)
	for _, name := range []string{"apt-get", "cosign", "curl", "dnf", "gh", "sha256sum", "tar"} {
		commands, err := docs.Of("../..", name)
		ready(t, err)
		if len(commands) == 0 {
			t.Errorf("no document shows %s", name)
		}
		for _, c := range commands {
			switch name {
			case "cosign":
				checkCosign(t, c, workflow)
			case "gh":
				checkAttestation(t, c, workflow, dir)
			case "sha256sum", "tar":
				cmd := exec.Command(name, c.Args...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", c, err, out)
				}
			default:
				of, file := path.Split(c.Args[len(c.Args)-1])
				if _, err := os.Stat(filepath.Join(dir, file)); err != nil || of != "./" && of != download(next) {
					t.Errorf("%s: a release has no such file: %v", c, err)
				}
			}
		}
	}
	unpacked, err := buildinfo.ReadFile(filepath.Join(dir, "tandem"))
	if err != nil || unpacked.Path != info.Path {
		t.Errorf("the archive has %v, %v", unpacked, err)
	}
}

func download(version string) string { return source + "/releases/download/v" + version + "/" }

// checkCosign expects the workflow of a release as the one that signed.
func checkCosign(t *testing.T, c docs.Command, w workflow) {
	t.Helper()
	i := slices.Index(c.Args, "--certificate-identity") + 1
	file, tag, _ := strings.Cut(strings.TrimPrefix(c.Args[i], source+"/"), "@refs/tags/v")
	if _, err := os.Stat("../../" + file); err != nil || tag != strings.TrimSuffix(version.Of(nil), "-dev") {
		t.Errorf("%s: nothing signs as %s: %v", c, c.Args[i], err)
	}
	last := c.Args[len(c.Args)-1]
	name, found := strings.CutSuffix(last, ":"+tag)
	if last != sumsFile && !(found && slices.Contains(w.signed(), name)) {
		t.Errorf("%s: nobody signs %s", c, last)
	}
}

// checkAttestation expects an attestation by the workflow: the provenance of a file or an image, or with a
// type of predicate the SBOM of an image.
func checkAttestation(t *testing.T, c docs.Command, w workflow, dir string) {
	t.Helper()
	kind := "provenance"
	if i := slices.Index(c.Args, "--predicate-type"); i >= 0 {
		if kind = "SBOM"; c.Args[i+1] != "https://spdx.dev/Document/v2.3" {
			t.Errorf("%s: nobody attests %s", c, c.Args[i+1])
		}
	}
	if len(c.Args) < 5 || !slices.Equal(c.Args[:2], []string{"attestation", "verify"}) ||
		!slices.Equal(c.Args[3:5], []string{"--repo", "tandem-k8s/tandem"}) {
		t.Fatalf("%s: want gh attestation verify SUBJECT --repo tandem-k8s/tandem", c)
	}
	subject := c.Args[2]
	if image, ok := strings.CutPrefix(subject, "oci://"); ok {
		name, tag, _ := strings.Cut(image, ":")
		if tag != strings.TrimSuffix(version.Of(nil), "-dev") || !slices.Contains(w.attested()[kind], name) {
			t.Errorf("%s: nobody attests the %s of %s", c, kind, image)
		}
		return
	}
	_, err := os.Stat(filepath.Join(dir, subject))
	if err != nil || !slices.Contains(w.attested()[kind], "bin/release/"+sumsFile) {
		t.Errorf("%s: nobody attests the %s of %s: %v", c, kind, subject, err)
	}
}
