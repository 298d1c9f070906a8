// Command image packs the programs of a folder into a container image, a tarball that containerd, Docker,
// Podman and kind import, without any container engine. The same inputs give the same digest. It is what
// "make image" runs, and the Dockerfile makes its root of it as well ("make rootfs").
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("image", flag.ContinueOnError)
	bin := set.String("bin", "", "folder with tandem, tandem-gpu and tandem-rdma")
	busybox := set.String("busybox", "/bin/busybox", "static busybox, of the Debian package busybox-static")
	tag := set.String("tag", "tandem:latest", "name of the image")
	tarball := set.String("tarball", "", "file to write the image to")
	rootfs := set.String("rootfs", "", "folder to write the image's files to, instead")
	if err := set.Parse(args); err != nil {
		return err
	}
	base, err := baseFiles(*bin, *busybox)
	if err != nil {
		return err
	}
	if *rootfs != "" {
		return layOut(*rootfs, append(base, programFiles(*bin)...))
	}
	image, err := newImage(*bin, base, programFiles(*bin))
	if err != nil {
		return err
	}
	size, err := writeTarball(*tarball, *tag, image)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s@%s\n", *tarball, *tag, digest)
	fmt.Fprintf(stdout, "%.1f MB unpacked, %.1f MB to pull\n", float64(unpacked(base, programFiles(*bin)))/1e6,
		float64(size)/1e6)
	return nil
}
