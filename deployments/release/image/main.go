// SPDX-License-Identifier: Apache-2.0

// Command image packs the programs of a folder into a container image, a tarball that containerd, Docker,
// Podman and kind import, without any container engine. Equal inputs give equal digests. "make image" runs
// this command. With --root it only writes the files of the image, which the Dockerfile copies.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("image", flag.ContinueOnError)
	bins := set.String("bin", "", "folder with tandem, tandem-gpu, tandem-rdma, tandem-dra and config-manager; "+
		"several, with commas between, of one architecture each")
	shells := set.String("busybox", "/bin/busybox", "static busybox, of the Debian package busybox-static; "+
		"as many as folders, in the same order")
	tag := set.String("tag", "tandem", "name of the image; without a tag behind a colon "+
		"it gets that of the version")
	scheduler := set.String("scheduler", "", "tandem-scheduler, for an image that has nothing else; "+
		"several, with commas between, of one architecture each")
	tarball := set.String("tarball", "", "file to write the image to")
	root := set.String("root", "", "folder to make and to write the files of the image to, "+
		"in place of the image itself; for one architecture")
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
		images, content = append(images, image), content+unpacked(layers...)
	}
	size, digest, err := writeTarball(*tarball, reference, labels, images)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s@%s\n", *tarball, reference, digest)
	fmt.Fprintf(stdout, "%.1f MB unpacked, %.1f MB to pull\n", float64(content)/1e6, float64(size)/1e6)
	return nil
}
