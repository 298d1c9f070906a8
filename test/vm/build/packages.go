// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// Debian's packages. Nothing is installed on the host: packages are unpacked into one folder, the guest's
// root file system, from which QEMU, etcd, mke2fs and depmod run here.
const (
	// igb with SR-IOV came with QEMU 8; Debian 12 has 7.2
	backports = "qemu-system-x86 linux-image-amd64"
	stable    = "runc containernetworking-plugins mount busybox-static etcd-server e2fsprogs " +
		"kmod iproute2 perftest"

	packagesKey = backports + "\n" + stable
)

// fetchPackages downloads the packages with all dependencies, as resolved by apt for an empty machine.
func (c *Cache) fetchPackages(ctx context.Context) error {
	config, err := c.aptConfig()
	if err != nil {
		return err
	}
	apt := func(args ...string) error {
		cmd := exec.Command("apt-get", append([]string{"-qq", "-y", "--no-install-recommends"}, args...)...)
		cmd.Env = append(os.Environ(), "APT_CONFIG="+config, "DEBIAN_FRONTEND=noninteractive")
		_, err := host.Run(ctx, cmd)
		return err
	}
	if err := apt("update"); err != nil {
		return err
	}
	if err := apt(append([]string{"install", "--download-only", "-t", "bookworm-backports"},
		strings.Fields(backports)...)...); err != nil {
		return err
	}
	return apt(append([]string{"install", "--download-only"}, strings.Fields(stable)...)...)
}

// aptConfig writes a configuration that keeps apt within the cache: its lists, its downloads, and an empty
// status file. The sources are the machine's own, with backports.
func (c *Cache) aptConfig() (string, error) {
	dir := c.Path("apt")
	for _, sub := range []string{"lists/partial", "archives/partial", "sources"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	uri := "http://deb.debian.org/debian"
	if own, err := os.ReadFile("/etc/apt/sources.list.d/debian.sources"); err == nil {
		for line := range strings.Lines(string(own)) {
			if value, ok := strings.CutPrefix(line, "URIs:"); ok {
				uri = strings.TrimSpace(value)
				break
			}
		}
	}
	source := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: bookworm bookworm-updates "+
		"bookworm-backports\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n", uri)
	config := fmt.Sprintf(`Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s";
Dir::Cache::archives "%[1]s/archives";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "%[1]s/sources";
APT::Sandbox::User "root";
`, dir)
	for name, content := range map[string]string{
		"sources/debian.sources": source, "apt.conf": config, "status": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "apt.conf"), nil
}

// unpackPackages unpacks all packages into root. Of two versions of a package, the later one is unpacked
// last.
func (c *Cache) unpackPackages(ctx context.Context) error {
	root := c.Path("root")
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	packages, err := filepath.Glob(c.Path("apt/archives/*.deb"))
	if err != nil {
		return err
	}
	for _, file := range packages { // sorted by name, and so by version
		if _, err := host.Run(ctx, exec.Command("dpkg-deb", "-x", file, root)); err != nil {
			return err
		}
	}
	return c.completeRoot(ctx, root)
}

// completeRoot replaces the packages' scripts, as far as a node needs them.
func (c *Cache) completeRoot(ctx context.Context, root string) error {
	applets, err := host.Run(ctx, exec.Command(filepath.Join(root, "bin/busybox"), "--list"))
	if err != nil {
		return err
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "opt/images", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		link := filepath.Join(root, "bin", applet)
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink("busybox", link); err != nil {
			return err
		}
	}
	kernel, err := c.KernelVersion()
	if err != nil {
		return err
	}
	_, err = host.Run(ctx, c.toolAs("bin/kmod", "depmod", "-b", root, kernel))
	return err
}

// KernelVersion names the folder of the kernel's modules.
func (c *Cache) KernelVersion() (string, error) {
	found, err := filepath.Glob(c.Path("root/lib/modules/*"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("want one kernel in %s: %v %w", c.Path("root/lib/modules"), found, err)
	}
	return filepath.Base(found[0]), nil
}

// packages fetches and unpacks.
func (c *Cache) packages(ctx context.Context) error {
	if err := c.make(ctx, "packages", packagesKey, 20*time.Minute, c.fetchPackages); err != nil {
		return err
	}
	return c.make(ctx, "root", packagesKey, 10*time.Minute, c.unpackPackages)
}

// Tool returns a command that runs a program of the packages from their folder: with their own loader and
// libraries.
func (c *Cache) Tool(program string, args ...string) *exec.Cmd {
	return c.toolAs(program, filepath.Base(program), args...)
}

// toolAs is Tool for a program that depends on its own name.
func (c *Cache) toolAs(program, name string, args ...string) *exec.Cmd {
	root := c.Path("root")
	libraries := filepath.Join(root, "lib/x86_64-linux-gnu") + ":" +
		filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	loader := []string{"--library-path", libraries, "--argv0", name, filepath.Join(root, program)}
	return exec.Command(filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), append(loader, args...)...)
}
