// SPDX-License-Identifier: Apache-2.0

// Command image packs the programs of a directory into a container image without a container engine. The
// result is a tarball for containerd, Docker, Podman and kind. Builds are reproducible. With --root the
// command writes only the files of the image, for the Dockerfile. "make image" runs the command.
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tandem-k8s/tandem/coordination/version"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("image", flag.ContinueOnError)
	bins := set.String("bin", "", "comma-separated directories with tandem, tandem-gpu, tandem-rdma, "+
		"tandem-dra and config-manager, one directory for each architecture")
	shells := set.String("busybox", "/bin/busybox", "comma-separated static busybox programs (Debian package "+
		"busybox-static), one for each directory of --bin")
	tag := set.String("tag", "tandem", "name of the image; without a tag (NAME:TAG) the tag is the version")
	scheduler := set.String("scheduler", "", "comma-separated tandem-scheduler programs, one for each "+
		"architecture, for an image with only tandem-scheduler")
	tarball := set.String("tarball", "", "output file of the image")
	root := set.String("root", "", "new directory for the files of the image, instead of the image; "+
		"for one architecture")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *root != "" && (*scheduler != "" || *tarball != "") {
		return errors.New("--root writes the files of the plugins' image, without --scheduler and --tarball")
	}
	if *scheduler != "" {
		return packScheduler(strings.Split(*scheduler, ","), *tag, *tarball, stdout)
	}
	folders, busyboxes := strings.Split(*bins, ","), strings.Split(*shells, ",")
	if len(folders) != len(busyboxes) {
		return fmt.Errorf("--bin names %d folders and --busybox %d programs: want one for each",
			len(folders), len(busyboxes))
	}
	if *root != "" {
		if len(folders) > 1 {
			return fmt.Errorf("--bin names %d folders: want one with --root", len(folders))
		}
		return writeRoot(*root, folders[0], busyboxes[0])
	}
	labels, err := labelsOf(folders)
	if err != nil {
		return err
	}
	reference := withTag(*tag, labels)
	var images []v1.Image
	var content int64
	for i, bin := range folders {
		layers, err := contents(bin, busyboxes[i])
		if err != nil {
			return err
		}
		image, err := newImage(filepath.Join(bin, "tandem-gpu"), v1.Config{
			Env: environment, Entrypoint: entrypoint, WorkingDir: "/root", Labels: labels,
		}, layers...)
		if err != nil {
			return err
		}
		images, content = append(images, image), content+unpackedSize(layers...)
	}
	size, digest, err := writeTarball(*tarball, reference, labels, images)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s@%s\n", *tarball, reference, digest)
	fmt.Fprintf(stdout, "%.1f MB unpacked, %.1f MB to pull\n", float64(content)/1e6, float64(size)/1e6)
	return nil
}

// packScheduler writes an image with only tandem-scheduler, which runs on other nodes than the plugins and is
// larger than all plugins together.
func packScheduler(programs []string, tag, tarball string, stdout io.Writer) error {
	labels, err := schedulerLabels(programs)
	if err != nil {
		return err
	}
	var images []v1.Image
	for _, program := range programs {
		image, err := schedulerImage(program, labels)
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	reference := withTag(tag, labels)
	size, digest, err := writeTarball(tarball, reference, labels, images)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s@%s\n%.1f MB to pull\n", tarball, reference, digest, float64(size)/1e6)
	return nil
}

func schedulerImage(program string, labels map[string]string) (v1.Image, error) {
	licences, err := programLicences(program)
	if err != nil {
		return nil, err
	}
	return newImage(program, v1.Config{
		Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"tandem-scheduler"}, User: "65532", Labels: labels,
	}, append([]file{
		{name: "etc/passwd", text: "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"},
		{name: "usr/bin/tandem-scheduler", from: program},
	}, licences...))
}

func schedulerLabels(programs []string) (map[string]string, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":       "tandem-scheduler",
		"org.opencontainers.image.description": "kube-scheduler with Tandem's plugin",
		"org.opencontainers.image.source":      "https://github.com/tandem-k8s/tandem",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
	return labels, addSource(labels, programs, "make tandem-scheduler")
}

// Keys of the OCI image specification (annotations.md).
const (
	labelVersion  = "org.opencontainers.image.version"
	labelRevision = "org.opencontainers.image.revision"
)

// labelsOf returns the labels of the image with the programs of some directories. All programs must have one
// version.
func labelsOf(folders []string) (map[string]string, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":         "tandem",
		"org.opencontainers.image.description":   "A container's GPUs and RDMA VFs on the same PCIe switch",
		"org.opencontainers.image.source":        "https://github.com/tandem-k8s/tandem",
		"org.opencontainers.image.documentation": "https://github.com/tandem-k8s/tandem/tree/main/docs",
		// Tandem, busybox and glibc.
		"org.opencontainers.image.licenses": "Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later",
	}
	var programs []string
	for _, folder := range folders {
		programs = append(programs, filepath.Join(folder, "tandem"))
	}
	return labels, addSource(labels, programs, "make build")
}

// addSource adds the version and commit of programs to labels. All programs must have one version. An error
// for an unreadable program contains the build command.
func addSource(labels map[string]string, programs []string, build string) error {
	for i, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("read the version of %s: %w; run %s", program, err, build)
		}
		own := version.Of(info)
		if i > 0 && own != labels[labelVersion] {
			return fmt.Errorf("%s is of version %s and %s of %s: build both from one source",
				program, own, programs[0], labels[labelVersion])
		}
		labels[labelVersion] = own
		if commit, _ := version.Source(info); commit != "" {
			labels[labelRevision] = commit
		}
	}
	return nil
}

// withTag returns the name of the image, with the tag of the version if the name has no tag. A tag cannot
// contain a plus sign; like Helm, withTag writes "_".
func withTag(name string, labels map[string]string) string {
	if strings.Contains(path.Base(name), ":") {
		return name
	}
	return name + ":" + strings.ReplaceAll(labels[labelVersion], "+", "_")
}
