// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entrypoint is the default command of the image. The script distinguishes manifests for GPUs from manifests
// for VFs.
var entrypoint = []string{"/entrypoint.sh"}

// environment is the environment of all programs in the image.
var environment = []string{
	"PATH=/usr/bin:/bin",
	// The kubelet calls a plugin sequentially. Without a limit on a node with 256 CPUs, a plugin would use 50 %
	// more memory and ten times as many threads. The Go runtime needs GOMAXPROCS at the start of the process.
	"GOMAXPROCS=2",
	// NVIDIA's container runtime adds these parts of the driver to a container that names GPUs. The image names
	// none, unlike NVIDIA's (deployments/container/Dockerfile in NVIDIA/k8s-device-plugin): all of its pods,
	// those that need no GPU included, would get all GPUs, and could not start without the driver.
	"NVIDIA_DRIVER_CAPABILITIES=compute,utility",
}

// newImage returns an image with the architecture of a program, the settings of the container, and one layer
// for each list of files.
func newImage(program string, container v1.Config, layers ...[]file) (v1.Image, error) {
	arch, err := architecture(program)
	if err != nil {
		return nil, err
	}
	image := emptyImage()
	for _, files := range layers {
		layer, err := newLayer(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, fmt.Errorf("add a layer: %w", err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = container
	return mutate.ConfigFile(image, config)
}

func emptyImage() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// newLayer returns a layer with files in the order of the list, without owners and times.
func newLayer(files []file) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, folder := range folders(files) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := f.pack(w); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

func (f file) pack(w *tar.Writer) error {
	if f.link != "" {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.link, Mode: 0o777})
	}
	content, err := f.content()
	if err != nil {
		return err
	}
	return packFile(w, f.name, content, int64(f.mode()))
}

func packFile(w *tar.Writer, name string, content []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: mode,
	}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
