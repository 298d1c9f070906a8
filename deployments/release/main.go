// SPDX-License-Identifier: Apache-2.0

// Command release makes the parts of a release besides image and chart: archives and packages of the program
// tandem, an SBOM, and the checksums of all files in the folder. Equal inputs give equal bytes. It is part of
// "make release".
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/version"
)

// release is a version of Tandem, built from one commit.
type release struct {
	out     string // folder of the artefacts
	root    string // of the repository
	image   string // the image's tarball; "" for none
	version string
	made    time.Time // when the commit was; the time of every file
	builds  []build
}

// build has the programs of one architecture.
type build struct{ dir, arch string }

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("release", flag.ContinueOnError)
	bins := set.String("bin", "", "folders with the programs, of one architecture each, with commas between; "+
		"this machine's first")
	image := set.String("image", "", "tarball of the image, for the SBOM")
	root := set.String("root", "../..", "folder of the repository")
	out := set.String("out", "", "folder to write into, with what has been made already")
	if err := set.Parse(args); err != nil {
		return err
	}
	r, err := newRelease(*root, *out, *image, strings.Split(*bins, ","))
	if err != nil {
		return err
	}
	extras, err := r.extras()
	if err != nil {
		return err
	}
	for _, b := range r.builds {
		files, err := r.contents(b, extras)
		if err != nil {
			return err
		}
		if err := errors.Join(r.archive(b, files), r.pack(b, files)); err != nil {
			return err
		}
	}
	if err := errors.Join(r.writeKrew(), r.writeSBOM()); err != nil {
		return err
	}
	sums, err := checksums(r.out)
	fmt.Fprintf(stdout, "%s\n%s", r.version, sums)
	return err
}

// newRelease reads the common version from the programs.
func newRelease(root, out, image string, bins []string) (release, error) {
	r := release{root: root, out: out, image: image}
	for _, dir := range bins {
		program := filepath.Join(dir, "tandem")
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return r, fmt.Errorf("read the version of %s: %w; run make build", program, err)
		}
		own := version.Of(info)
		if r.version != "" && own != r.version {
			return r, fmt.Errorf("%s is of version %s, others of %s: build all from one source",
				program, own, r.version)
		}
		b := build{dir: dir}
		for _, s := range info.Settings {
			if s.Key == "GOARCH" {
				b.arch = s.Value
			}
		}
		r.version, r.builds = own, append(r.builds, b)
		if _, r.made = version.Source(info); r.made.IsZero() {
			r.made = time.Unix(0, 0).UTC() // for a build from a tarball: any constant time
		}
	}
	return r, os.MkdirAll(out, 0o755)
}

// path returns the path of an artefact.
func (r release) path(name string) string { return filepath.Join(r.out, name) }
