// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

//go:embed etc/containerd.toml
var containerdConfig string

//go:embed etc/kubelet.yaml
var kubeletConfig string

//go:embed etc/systemctl
var systemctl string

//go:embed etc/runc
var runc string

//go:embed etc/multus.conf
var multusConfig string

//go:embed etc/cni.conflist
var cniConfig string

// cpuConfig is a setting of the owner of a node with GPUs. A machine with a plain kubelet lacks it.
const cpuConfig = "apiVersion: kubelet.config.k8s.io/v1beta1\n" +
	"kind: KubeletConfiguration\ncpuManagerPolicy: static\n"

// shippedKubeletConfig is the file for the kubelet's drop-in folder.
const shippedKubeletConfig = "deployments/kubelet/config.yaml"

// guestFiles packs the overlay of the guest's root.
func (c *Cache) guestFiles(o Options) error {
	pause := c.Path("pause.tar")
	if err := c.pauseImage(pause); err != nil {
		return err
	}
	files := []packed{
		{name: "etc/passwd", text: "root:x:0:0:root:/root:/bin/sh\n", mode: 0o644},
		{name: "etc/group", text: "root:x:0:\n", mode: 0o644},
		{name: "etc/hosts", text: "127.0.0.1 localhost\n10.0.2.15 " + o.Node + "\n", mode: 0o644},
		{name: "etc/resolv.conf", text: "", mode: 0o644},
		{name: "etc/machine-id", text: "74616e64656d00000000000000000000\n", mode: 0o644},
		{name: "etc/containerd/config.toml", text: containerdConfig, mode: 0o644},
		{name: "etc/cni/net.d/10-pods.conflist", text: cniConfig, mode: 0o644},
		{name: "etc/kubernetes/multus.conf", text: multusConfig, mode: 0o644},
		{name: "etc/kubernetes/kubelet.yaml", text: kubeletConfig, mode: 0o644},
		{name: "etc/kubernetes/kubelet.conf.d/cpus.conf", text: cpuConfig, mode: 0o644},
		{name: "etc/kubernetes/kubelet.conf.d/tandem.conf", from: shippedKubeletConfig, mode: 0o644},
		{name: "etc/kubernetes/kubeconfig", text: o.Kubeconfig, mode: 0o600},
		{name: "opt/images/pause.tar", from: pause, mode: 0o644},
		{name: "opt/images/tandem.tar", from: c.Path("image.tar"), mode: 0o644},
		{name: "usr/local/bin/tandem", from: filepath.Join(o.Bin, "tandem"), mode: 0o755},
		{name: "bin/systemctl", text: systemctl, mode: 0o755},
		{name: "usr/local/bin/runc", text: runc, mode: 0o755},
		{
			name: "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", mode: 0o644,
			from: filepath.Join(o.Bin, "nvml/libnvidia-ml.so.1"),
		},
		{name: "usr/local/bin/guest", from: c.Path("guest"), mode: 0o755},
	}
	if o.Upgrade {
		files = append(files, packed{name: "opt/images/before.tar", from: c.Path(earlierTar), mode: 0o644})
	}
	return writeArchive(c.Path("files.tar"), files, tarball)
}

// pauseImage packs pause as the image of the sandboxes' container, in the format of "docker save".
func (c *Cache) pauseImage(to string) error {
	var layer bytes.Buffer
	if err := tarball(&layer, []packed{{name: "pause", from: c.Path("pause"), mode: 0o755}}); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": "amd64",
		"config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))},
		},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{
		map[string]any{"Config": "config.json", "RepoTags": []string{"pause:e2e"}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return err
	}
	return writeArchive(to, []packed{
		{name: "manifest.json", text: string(manifest), mode: 0o644},
		{name: "config.json", text: string(config), mode: 0o644},
		{name: "layer.tar", text: layer.String(), mode: 0o644},
	}, tarball)
}

// packed is a file of an archive: a copy of a local file, or text.
type packed struct {
	name string // without the leading slash
	from string
	text string
	mode int64
}

func (p packed) content() ([]byte, error) {
	if p.from == "" {
		return []byte(p.text), nil
	}
	return os.ReadFile(p.from)
}

// writeArchive writes files into an archive of a format.
func writeArchive(to string, files []packed, format func(io.Writer, []packed) error) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(format(out, files), out.Close())
}

func tarball(w io.Writer, files []packed) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		content, err := f.content()
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(content)), Mode: f.mode,
		}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// cpio writes the format of an initial RAM disk (Documentation/driver-api/early-userspace/buffer-format.rst),
// with the folders of the files and a console for the first process.
func cpio(w io.Writer, files []packed) error {
	const directory, regular, character = 0o040000, 0o100000, 0o020000
	e := &cpioWriter{w: w}
	e.entry("dev", directory|0o755, 0, nil)
	e.entry("dev/console", character|0o600, 5<<8|1, nil)
	made := map[string]bool{"dev": true, ".": true}
	for _, f := range files {
		if dir := path.Dir(f.name); !made[dir] {
			made[dir] = true
			e.entry(dir, directory|0o755, 0, nil)
		}
		content, err := f.content()
		if err != nil {
			return err
		}
		e.entry(f.name, regular|f.mode, 0, content)
	}
	e.entry("TRAILER!!!", 0, 0, nil)
	return e.err
}

type cpioWriter struct {
	w      io.Writer
	number int // of the entry, its inode
	err    error
}

// entry writes a header of 13 numbers in hex, the name and the content, each filled up to four bytes.
func (e *cpioWriter) entry(name string, mode int64, device int, content []byte) {
	e.number++
	var out bytes.Buffer
	out.WriteString("070701")
	for _, field := range []int64{
		int64(e.number), mode, 0, 0, 1, 0, int64(len(content)), 0, 0, int64(device >> 8), int64(device & 0xff),
		int64(len(name) + 1), 0,
	} {
		fmt.Fprintf(&out, "%08x", field)
	}
	for _, part := range [][]byte{append([]byte(name), 0), content} {
		out.Write(part)
		for out.Len()%4 != 0 {
			out.WriteByte(0)
		}
	}
	if e.err == nil {
		_, e.err = e.w.Write(out.Bytes())
	}
}
