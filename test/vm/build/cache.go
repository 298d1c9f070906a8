// SPDX-License-Identifier: Apache-2.0

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
