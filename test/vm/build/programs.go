// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/before"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

// components are the programs of Kubernetes, named as their folders in k8s.io/kubernetes/cmd.
var components = []string{"kubelet", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl"}

// containerPrograms are containerd's: the daemon, the shim of a container, and the command line.
var containerPrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr"}

// Modules of this repository with programs.
const (
	kubernetesModule = "test/vm/kubernetes"
	schedulerModule  = "cmd/tandem-scheduler"
)

// External modules, whose programs are built as released.
const (
	containerdModule = "github.com/containerd/containerd/v2@v2.2.1"
	multusModule     = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4@v4.2.3"
	helmModule       = "helm.sh/helm/v4@v4.1.1"
)

// kubernetes builds the components.
func (c *Cache) kubernetes(ctx context.Context) error {
	key, err := kubernetesKey()
	if err != nil {
		return err
	}
	return c.make(ctx, "kubernetes", key, 45*time.Minute, func(ctx context.Context) error {
		if err := os.MkdirAll(c.Path("kubernetes"), 0o755); err != nil {
			return err
		}
		version, err := host.Run(ctx,
			host.InFolder(kubernetesModule, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"))
		if err != nil {
			return err
		}
		stamp := "-s -w -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
		for _, component := range components {
			c.Say("build %s", component)
			program := "k8s.io/kubernetes/cmd/" + component
			if err := goBuild(ctx, kubernetesModule, program, c.Path("kubernetes")+"/", stamp); err != nil {
				return err
			}
		}
		return nil
	})
}

// containerd builds the container runtime: Debian 12's version lacks CDI, which DRA drivers need.
func (c *Cache) containerd(ctx context.Context) error {
	return c.make(ctx, "containerd", containerdModule, 20*time.Minute, func(ctx context.Context) error {
		if err := os.MkdirAll(c.Path("containerd"), 0o755); err != nil {
			return err
		}
		for _, program := range containerPrograms {
			if err := c.released(ctx, containerdModule, program, c.Path("containerd")+"/"); err != nil {
				return err
			}
		}
		return nil
	})
}

// multus builds Multus.
func (c *Cache) multus(ctx context.Context) error {
	return c.make(ctx, "multus", multusModule, 20*time.Minute, func(ctx context.Context) error {
		return c.released(ctx, multusModule, "multus", c.Path("multus"))
	})
}

// released builds a program in cmd of an external module, in the module's own folder: with the versions and
// checksums of its release. "go install" would do the same, but also requests the list of all versions from
// the module registry, which some registries lack.
func (c *Cache) released(ctx context.Context, module, program, to string) error {
	dir, err := c.download(ctx, module)
	if err != nil {
		return err
	}
	return goBuild(ctx, dir, "./cmd/"+program, to, "-s -w")
}

// download reports the folder of a module in Go's cache of modules.
func (c *Cache) download(ctx context.Context, module string) (string, error) {
	output, err := host.Run(ctx, host.InFolder(c.Dir, "go", "mod", "download", "-json", module))
	if err != nil {
		return "", err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(output, &downloaded); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", module, err)
	}
	return downloaded.Dir, nil
}

func goBuild(ctx context.Context, module, program, to, flags string, more ...string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", to}, more...)
	cmd := host.InFolder(module, "go", append(args, program)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	_, err := host.Run(ctx, cmd)
	return err
}

// Scheduler is the file of tandem-scheduler, in the cluster's own version of Kubernetes.
const Scheduler = "tandem-scheduler"

func (c *Cache) scheduler(ctx context.Context) error {
	return goBuild(ctx, schedulerModule, ".", c.Path(Scheduler), "-s -w", "-modfile=go.v1.36.mod",
		"-tags=kubernetes136")
}

// guestPrograms builds the test's own programs for the machine.
func (c *Cache) guestPrograms(ctx context.Context) error {
	for _, program := range []string{"guest", "pause"} {
		if err := goBuild(ctx, "test/vm", "./"+program, c.Path(program), "-s -w"); err != nil {
			return err
		}
	}
	return nil
}

// Image is the name of Tandem's image in the guest, Earlier that of the version before.
const (
	Image   = "registry.example/tandem:v1"
	Earlier = "registry.example/tandem:v0"
)

// images packs Tandem's image, and on request that of the version before.
func (c *Cache) images(ctx context.Context, bin string, upgrade bool) error {
	if err := c.image(ctx, bin, Image, c.Path("image.tar")); err != nil || !upgrade {
		return err
	}
	programs := []string{"tandem", "tandem-gpu", "tandem-rdma", "tandem-dra", "config-manager"}
	earlier, err := before.Build(".", c.Path("before"), programs...)
	if err != nil {
		return err
	}
	return c.image(ctx, earlier, Earlier, c.Path(earlierTar))
}

// earlierTar is the file of the image Earlier.
const earlierTar = "image-before.tar"

// image packs an image as "make image" does, with the shell of the node's packages: this host may have none.
func (c *Cache) image(ctx context.Context, bin, tag, tar string) error {
	_, err := host.Run(ctx, host.InFolder("deployments/release", "go", "run", "-buildvcs=false", "./image",
		"--bin", bin, "--busybox", c.Path("root/bin/busybox"), "--tag", tag, "--tarball", tar))
	return err
}

// kubernetesKey returns the key of the components.
func kubernetesKey() (string, error) {
	return hashFiles(kubernetesModule+"/go.mod", kubernetesModule+"/go.sum")
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

// operator is the module of the Prometheus operator, whose kinds the chart and deployments/monitoring use.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.93.1"

// user makes a user's tools besides kubectl: Helm, kubectl's plugin, and the Prometheus operator's CRDs for
// the cluster.
func (c *Cache) user(ctx context.Context, bin string) error {
	err := c.make(ctx, "user", helmModule+" "+operator, 20*time.Minute, func(ctx context.Context) error {
		if err := os.MkdirAll(c.Path("user/crds"), 0o755); err != nil {
			return err
		}
		if err := c.operatorKinds(ctx); err != nil {
			return err
		}
		return c.released(ctx, helmModule, "helm", c.Path("user/helm"))
	})
	if err != nil {
		return err
	}
	return c.plugin(bin)
}

// plugin installs Tandem's program as kubectl's plugin.
func (c *Cache) plugin(bin string) error {
	link := c.Path("user/kubectl-tandem")
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(bin, "tandem"), link)
}

// operatorKinds copies the definitions of the two kinds out of the operator's module.
func (c *Cache) operatorKinds(ctx context.Context) error {
	module, err := c.download(ctx, operator)
	if err != nil {
		return err
	}
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		file := "monitoring.coreos.com_" + kind + ".yaml"
		from := filepath.Join(module, "example/prometheus-operator-crd", file)
		if err := copyFile(from, c.Path("user/crds", file), 0o644); err != nil {
			return err
		}
	}
	return nil
}
