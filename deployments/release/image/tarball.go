// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

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
	if digest, err = writeLayout(dir, reference, labels, images); err != nil {
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
