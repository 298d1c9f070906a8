// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
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
		image, err = mutate.AppendLayers(image, layer)
		if err != nil {
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

// writeTarball writes an OCI image layout as a tarball, with the manifest of older Docker versions. It
// returns the size of the content in bytes and the digest of the image. For several architectures, the
// tarball has an index of the images, annotated with the labels.
func writeTarball(
	to, tag string, labels map[string]string, images []v1.Image,
) (size int64, digest v1.Hash, err error) {
	reference, err := name.NewTag(tag, name.WeakValidation)
	if err != nil {
		return 0, digest, fmt.Errorf("name the image: %w", err)
	}
	dir, err := os.MkdirTemp("", "tandem-image-")
	if err != nil {
		return 0, digest, err
	}
	defer os.RemoveAll(dir)
	digest, err = writeLayout(dir, reference, labels, images)
	if err != nil {
		return 0, digest, err
	}
	if err := writeDockerManifest(dir, tag, images[0]); err != nil { // supports one architecture
		return 0, digest, err
	}
	size, err = pack(dir, to)
	return size, digest, err
}

// writeLayout writes the OCI image layout of an image, or of an index of several images, into a directory.
func writeLayout(
	dir string, reference name.Tag, labels map[string]string, images []v1.Image,
) (v1.Hash, error) {
	oci, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	names := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          containerdName(reference),
		"org.opencontainers.image.ref.name": reference.TagStr(),
	})
	if len(images) == 1 {
		if err := oci.AppendImage(images[0], names); err != nil {
			return v1.Hash{}, err
		}
		return images[0].Digest()
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex) // Annotations keeps the type
	if err := oci.AppendIndex(index, names); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// containerdName returns the name of an image for containerd and the kubelet: docker.io instead of
// index.docker.io. Pods do not find an image imported under index.docker.io.
func containerdName(tag name.Tag) string {
	if tag.RegistryStr() == name.DefaultRegistry {
		return "docker.io/" + tag.RepositoryStr() + ":" + tag.TagStr()
	}
	return tag.Name()
}

// writeDockerManifest writes manifest.json, which all versions of "docker load" support.
func writeDockerManifest(dir, tag string, image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	var entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	entry.Config, entry.RepoTags = blob(manifest.Config.Digest), []string{tag}
	for _, layer := range manifest.Layers {
		entry.Layers = append(entry.Layers, blob(layer.Digest))
	}
	content, err := json.Marshal([]any{entry})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), content, 0o644)
}

// pack writes the files of a directory to a tarball by name, and returns their size in bytes.
func pack(dir, to string) (size int64, err error) {
	out, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	w := tar.NewWriter(out)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		size += int64(len(content))
		return packFile(w, name, content, 0o644)
	})
	for _, end := range []func() error{w.Close, out.Close} {
		if err == nil {
			err = end()
		}
	}
	return size, err
}
