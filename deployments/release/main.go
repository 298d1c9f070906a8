// SPDX-License-Identifier: Apache-2.0

// Command release makes the artefacts of a release except images and chart: archives and packages of the
// program tandem, a Krew manifest, an SBOM of each image, and the checksums of all artefacts. Builds are
// reproducible. "make release" runs the command.
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

	"github.com/tandem-k8s/tandem/coordination/version"
)

// release is a version of Tandem from one commit.
type release struct {
	out     string // directory of the artefacts
	root    string // root of the repository
	version string
	made    time.Time // time of the commit and of all files
	builds  []build
}

// build is a directory with the programs of one platform. For macOS these are tandem and tandem-lab.
type build struct{ dir, os, arch string }

// linux is the operating system of the nodes.
const linux = "linux"

// isProgram reports whether a build has a program.
func (b build) isProgram(name string) bool {
	return b.os == linux || name == "tandem" || name == "tandem-lab"
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("release", flag.ContinueOnError)
	bins := set.String("bin", "", "comma-separated directories with the programs of one platform each, "+
		"the platform of this machine first")
	var images images
	set.StringVar(&images.tandem, "image", "", "tarball of the image, for its SBOM")
	set.StringVar(&images.scheduler, "scheduler-image", "", "tarball of tandem-scheduler's image, for its SBOM")
	root := set.String("root", "../..", "root of the repository")
	out := set.String("out", "", "output directory, which may contain other artefacts")
	if err := set.Parse(args); err != nil {
		return err
	}
	r, err := newRelease(*root, *out, strings.Split(*bins, ","))
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
		if err := r.write(b, files); err != nil {
			return err
		}
	}
	if err := errors.Join(r.writeKrew(), r.writeSBOMs(images)); err != nil {
		return err
	}
	sums, err := checksums(r.out)
	fmt.Fprintf(stdout, "%s\n%s", r.version, sums)
	return err
}

// write writes the archive of a build, and of a build for Linux the packages.
func (r release) write(b build, files []file) error {
	if err := r.archive(b, files); err != nil || b.os != linux {
		return err
	}
	return r.pack(b, files)
}

// newRelease reads version, commit time and platforms from the programs. It returns an error if the
// versions differ.
func newRelease(root, out string, bins []string) (release, error) {
	r := release{root: root, out: out}
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
			switch s.Key {
			case "GOOS":
				b.os = s.Value
			case "GOARCH":
				b.arch = s.Value
			}
		}
		r.version, r.builds = own, append(r.builds, b)
		_, r.made = version.Source(info)
		if r.made.IsZero() {
			r.made = time.Unix(0, 0).UTC() // built without a commit, for example from a tarball
		}
	}
	return r, os.MkdirAll(out, 0o755)
}

// path returns the path of an artefact.
func (r release) path(name string) string { return filepath.Join(r.out, name) }
