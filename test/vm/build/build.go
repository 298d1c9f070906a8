// SPDX-License-Identifier: Apache-2.0

// Package build makes the inputs of the machine and its cluster: Debian's packages, the programs of
// Kubernetes and of users, the guest's disk and its initial RAM disk, and the overlay of its root.
package build

import (
	"context"
	"time"
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
