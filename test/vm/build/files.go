// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
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
