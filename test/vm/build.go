package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// components are the programs of Kubernetes, named as their folders in k8s.io/kubernetes/cmd.
var components = []string{"kubelet", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl"}

// module is what they are built from.
const module = "test/vm/kubernetes"

func moduleKey(module string) (string, error) { return hashFiles(module+"/go.mod", module+"/go.sum") }

// missing reports what would have to be downloaded or built for long, "" for nothing.
func (c *cache) missing() (string, error) {
	kubernetes, err := moduleKey(module)
	multus, other := moduleKey(multusModule)
	switch {
	case errors.Join(err, other) != nil:
		return "", errors.Join(err, other)
	case !c.has("packages", packagesKey) || !c.has("root", packagesKey):
		return "packages", nil
	case !c.has("kubernetes", kubernetes):
		return "kubernetes", nil
	case !c.has("multus", multus):
		return "multus", nil
	default:
		return "", nil
	}
}

// kubernetes builds the components.
func (c *cache) kubernetes(ctx context.Context) error {
	key, err := moduleKey(module)
	if err != nil {
		return err
	}
	return c.make(ctx, "kubernetes", key, 45*time.Minute, func(ctx context.Context) error {
		if err := os.MkdirAll(c.path("kubernetes"), 0o755); err != nil {
			return err
		}
		version, err := command(ctx, inFolder(module, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"))
		if err != nil {
			return err
		}
		stamp := "-s -w -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
		for _, component := range components {
			c.say("build %s", component)
			if err := goBuild(ctx, module, "k8s.io/kubernetes/cmd/"+component, c.path("kubernetes")+"/", stamp); err != nil {
				return err
			}
		}
		return nil
	})
}

// buildMultus builds Multus.
func (c *cache) buildMultus(ctx context.Context) error {
	key, err := moduleKey(multusModule)
	if err != nil {
		return err
	}
	return c.make(ctx, "multus", key, 20*time.Minute, func(ctx context.Context) error {
		return goBuild(ctx, multusModule, multusProgram, c.path("multus"), "-s -w")
	})
}

func goBuild(ctx context.Context, module, program, to, flags string) error {
	cmd := inFolder(module, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", to, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	_, err := command(ctx, cmd)
	return err
}

func inFolder(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	return cmd
}

func hashFiles(files ...string) (string, error) {
	sum := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// rootDisk packs root, the kubelet and Multus into an ext4 file system of which a run changes nothing. mke2fs makes it without mounting.
func (c *cache) rootDisk(ctx context.Context) error {
	key, err := hashFiles(c.path("root.key"), c.path("kubernetes.key"), c.path("multus.key"))
	if err != nil {
		return err
	}
	return c.make(ctx, "disk", key, 10*time.Minute, func(ctx context.Context) error {
		root, disk := c.path("root"), c.path("root.ext4")
		if err := errors.Join(
			copyFile(c.path("kubernetes/kubelet"), filepath.Join(root, "usr/local/bin/kubelet"), 0o755),
			copyFile(c.path("multus"), filepath.Join(root, "usr/lib/cni/multus"), 0o755),
		); err != nil {
			return err
		}
		if err := os.Remove(disk); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err := command(ctx, tool(root, "sbin/mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", root, disk, "4G"))
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

// guestPrograms builds what runs in the machine and is the test's own.
func (c *cache) guestPrograms(ctx context.Context) error {
	for _, program := range []string{"guest", "pause"} {
		if err := goBuild(ctx, "test/vm", "./"+program, c.path(program), "-s -w"); err != nil {
			return err
		}
	}
	return nil
}

// image packs Tandem's image as "make image" does, with the shell of the node's packages: this host may have none.
func (c *cache) image(ctx context.Context, bin string) error {
	_, err := command(ctx, inFolder("tools/image", "go", "run", "-buildvcs=false", ".", "--bin", bin,
		"--busybox", c.path("root/bin/busybox"), "--tag", image, "--tarball", c.path("image.tar")))
	return err
}

// initramfs is the guest's program and the modules of its disk.
func (c *cache) initramfs(ctx context.Context) error {
	kernel, err := c.kernelVersion()
	if err != nil {
		return err
	}
	files := []packed{{name: "init", from: c.path("guest"), mode: 0o755}}
	loaded := map[string]bool{}
	for _, module := range []string{"virtio_blk", "ext4"} {
		output, err := command(ctx, toolAs(c.path("root"), "bin/kmod", "modprobe", "-d", c.path("root"), "-S", kernel, "--show-depends", module))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(output)) { // insmod FILE
			kind, file, _ := strings.Cut(strings.TrimSpace(line), " ")
			if file = strings.TrimSpace(file); kind == "insmod" && !loaded[file] {
				loaded[file] = true
				files = append(files, packed{name: fmt.Sprintf("modules/%02d-%s", len(loaded), filepath.Base(file)), from: file, mode: 0o644})
			}
		}
	}
	return writeArchive(c.path("initramfs.cpio"), files, cpio)
}
