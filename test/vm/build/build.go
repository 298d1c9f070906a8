// SPDX-License-Identifier: Apache-2.0

// Package build makes the inputs of the machine and its cluster: Debian's packages, the programs of
// Kubernetes and of users, the guest's disk and its initial RAM disk, and the overlay of its root.
package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Options select optional parts and inputs.
type Options struct {
	Bin        string // folder with Tandem's own programs
	User       bool   // with a user's tools besides kubectl
	Upgrade    bool   // with the image of the version before
	Node       string // the guest's name
	Kubeconfig string // the guest's kubelet's
}

// All makes all parts that need the network, and Tandem's own.
func (c *Cache) All(ctx context.Context, o Options) error {
	if err := c.packages(ctx); err != nil {
		return err
	}
	if err := c.kubernetes(ctx); err != nil {
		return err
	}
	if err := c.containerd(ctx); err != nil {
		return err
	}
	if err := c.multus(ctx); err != nil {
		return err
	}
	if err := c.Stage(ctx, "tandem-scheduler", 30*time.Minute, c.scheduler); err != nil {
		return err
	}
	if o.User {
		if err := c.user(ctx, o.Bin); err != nil {
			return err
		}
	}
	if err := c.rootDisk(ctx); err != nil {
		return err
	}
	return c.Stage(ctx, "initial RAM disk and files", 5*time.Minute, func(ctx context.Context) error {
		if err := c.guestPrograms(ctx); err != nil {
			return err
		}
		if err := c.images(ctx, o.Bin, o.Upgrade); err != nil {
			return err
		}
		if err := c.initramfs(ctx); err != nil {
			return err
		}
		return c.guestFiles(o)
	})
}

// Missing returns a part that would need a download or a long build, or "".
func (c *Cache) Missing() (string, error) {
	if !c.has("packages", packagesKey) || !c.has("root", packagesKey) {
		return "packages", nil
	}
	key, err := kubernetesKey()
	if err != nil {
		return "", err
	}
	for _, built := range []struct{ thing, key string }{
		{"kubernetes", key}, {"containerd", containerdModule}, {"multus", multusModule},
	} {
		if !c.has(built.thing, built.key) {
			return built.thing, nil
		}
	}
	return "", nil
}

// Cache keeps the parts made before. A part is rebuilt when its key, a description of its inputs, changes.
type Cache struct {
	Dir string // absolute
	*host.Progress
}

// Path returns the path of a file in the folder.
func (c *Cache) Path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

// Lock locks the folder for this process until the returned file is closed or garbage-collected.
func (c *Cache) Lock() (*os.File, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%s is in use by another run: %w", c.Dir, err)
	}
	return dir, nil
}

// has reports whether a thing was made to the end under this key.
func (c *Cache) has(thing, key string) bool {
	known, err := os.ReadFile(c.Path(thing + ".key"))
	return err == nil && string(known) == key
}

// make makes a part unless it exists. An interrupted build continues from its remains.
func (c *Cache) make(
	ctx context.Context, thing, key string, limit time.Duration, do func(context.Context) error,
) error {
	if c.has(thing, key) {
		c.Say("%s: as it is in the cache", thing)
		return nil
	}
	if err := os.RemoveAll(c.Path(thing + ".key")); err != nil {
		return err
	}
	if err := c.Stage(ctx, thing, limit, do); err != nil {
		return err
	}
	return os.WriteFile(c.Path(thing+".key"), []byte(key), 0o644)
}
