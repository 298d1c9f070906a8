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

// What a container runs whose manifest names no command: tandem-gpu as AMD's and NVIDIA's own manifests
// expect of the image or, where there are arguments, tandem-rdma. The Dockerfile says the same.
var (
	entrypoint = []string{"/entrypoint.sh"}
	command    = []string{"tandem-gpu"}
)

// environment is that of every program in the image, and the Dockerfile's too. The kubelet asks a plugin one
// question after the other, and Go would have it run as many threads at a time as the node has CPUs: on 256
// it takes half as much memory again and ten times the threads. Only the environment tells Go early enough
// (GOMAXPROCS in the documentation of package runtime).
var environment = []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2"}

// newImage makes an image with one layer for each list of files.
func newImage(bin string, layers ...[]file) (v1.Image, error) {
	arch, err := architecture(filepath.Join(bin, "tandem-gpu"))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
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
	config.Config = v1.Config{
		Env:        environment,
		Entrypoint: entrypoint,
		Cmd:        command,
		WorkingDir: "/root",
		Labels:     map[string]string{"org.opencontainers.image.title": "tandem"},
	}
	return mutate.ConfigFile(image, config)
}

// newLayer packs files in the order of the list, without owners and times: the same files give the same
// layer.
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

// writeTarball writes an OCI image layout as a tarball, with the file that older Dockers look for, and
// returns its size.
func writeTarball(to, tag string, image v1.Image) (int64, error) {
	reference, err := name.NewTag(tag, name.WeakValidation)
	if err != nil {
		return 0, fmt.Errorf("name the image: %w", err)
	}
	dir, err := os.MkdirTemp("", "tandem-image-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	oci, err := layout.Write(dir, empty.Index)
	if err != nil {
		return 0, err
	}
	if err := oci.AppendImage(image, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          containerdName(reference),
		"org.opencontainers.image.ref.name": reference.TagStr(),
	})); err != nil {
		return 0, err
	}
	if err := writeDockerManifest(dir, tag, image); err != nil {
		return 0, err
	}
	return pack(dir, to)
}

// containerdName is what containerd and the kubelet call an image: docker.io is not index.docker.io to them,
// and an image that is imported under the latter is not there for pods.
func containerdName(tag name.Tag) string {
	if tag.RegistryStr() == name.DefaultRegistry {
		return "docker.io/" + tag.RepositoryStr() + ":" + tag.TagStr()
	}
	return tag.Name()
}

// writeDockerManifest writes manifest.json, which "docker load" understands in every version.
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

// pack writes the files of a folder into a tarball, in the order of their names.
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
