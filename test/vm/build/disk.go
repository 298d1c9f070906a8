// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// rootDisk packs root, the kubelet, containerd and Multus into an ext4 file system that runs never modify.
// mke2fs makes it without mounting.
func (c *Cache) rootDisk(ctx context.Context) error {
	key, err := hashFiles(c.Path("root.key"), c.Path("kubernetes.key"), c.Path("containerd.key"),
		c.Path("multus.key"))
	if err != nil {
		return err
	}
	return c.make(ctx, "disk", key, 10*time.Minute, func(ctx context.Context) error {
		root, disk := c.Path("root"), c.Path("root.ext4")
		if err := errors.Join(
			copyFile(c.Path("kubernetes/kubelet"), filepath.Join(root, "usr/local/bin/kubelet"), 0o755),
			copyFile(c.Path("multus"), filepath.Join(root, "usr/lib/cni/multus"), 0o755),
		); err != nil {
			return err
		}
		for _, program := range containerPrograms {
			to := filepath.Join(root, "usr/local/bin", program)
			if err := copyFile(c.Path("containerd", program), to, 0o755); err != nil {
				return err
			}
		}
		if err := os.Remove(disk); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		mke2fs := c.Tool("sbin/mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", root, disk, "4G")
		_, err := host.Run(ctx, mke2fs)
		return err
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, mode)
}

// initramfs packs the guest's program and the modules of its disk.
func (c *Cache) initramfs(ctx context.Context) error {
	kernel, err := c.KernelVersion()
	if err != nil {
		return err
	}
	files := []packed{{name: "init", from: c.Path("guest"), mode: 0o755}}
	loaded := map[string]bool{}
	for _, module := range []string{"virtio_blk", "ext4"} {
		output, err := host.Run(ctx,
			c.toolAs("bin/kmod", "modprobe", "-d", c.Path("root"), "-S", kernel, "--show-depends", module))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(output)) { // insmod FILE
			kind, file, _ := strings.Cut(strings.TrimSpace(line), " ")
			if file = strings.TrimSpace(file); kind == "insmod" && !loaded[file] {
				loaded[file] = true
				files = append(files, packed{
					name: fmt.Sprintf("modules/%02d-%s", len(loaded), filepath.Base(file)), from: file, mode: 0o644,
				})
			}
		}
	}
	return writeArchive(c.Path("initramfs.cpio"), files, cpio)
}
