package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// helmModule is what Helm is built from, and helmProgram its command line.
const (
	helmModule  = "test/vm/helm"
	helmProgram = "helm.sh/helm/v4/cmd/helm"
)

// operator is the module of the Prometheus operator, whose kinds the chart and deployments/monitoring use.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.93.1"

// user makes what a user has beside kubectl: Helm, and in the cluster the Prometheus operator's kinds.
func (c *cache) user(ctx context.Context) error {
	key, err := moduleKey(helmModule)
	if err != nil {
		return err
	}
	return c.make(ctx, "user", key+operator, 20*time.Minute, func(ctx context.Context) error {
		if err := os.MkdirAll(c.path("user/crds"), 0o755); err != nil {
			return err
		}
		if err := c.operatorKinds(ctx); err != nil {
			return err
		}
		return goBuild(ctx, helmModule, helmProgram, c.path("user/helm"), "-s -w")
	})
}

// operatorKinds copies the definitions of the two kinds out of the operator's module.
func (c *cache) operatorKinds(ctx context.Context) error {
	output, err := command(ctx, inFolder(c.dir, "go", "mod", "download", "-json", operator))
	if err != nil {
		return err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return fmt.Errorf("go mod download %s: %w", operator, err)
	}
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		file := "monitoring.coreos.com_" + kind + ".yaml"
		if err := copyFile(filepath.Join(module.Dir, "example/prometheus-operator-crd", file), c.path("user/crds", file), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// userFolder is where the user's copy of the repository is.
const userFolder = "run/user"

// asUser runs a shell's script where a user has kubectl and helm, and deployments.
func (t *tester) asUser(ctx context.Context, script string) (string, error) {
	cmd := inFolder(t.path(userFolder), "sh", "-c", script)
	cmd.Env = []string{
		"PATH=" + t.path("kubernetes") + ":" + t.path("user") + ":" + os.Getenv("PATH"),
		"KUBECONFIG=" + t.path("run/admin"), "HOME=" + t.path(userFolder),
	}
	output, err := command(ctx, cmd)
	return string(output), err
}

// layOutUser copies what a user works with, with the image's name put in where README and the files say so.
func (t *tester) layOutUser() error {
	name, tag, _ := strings.Cut(image, ":")
	own := strings.NewReplacer("newName: tandem\n", "newName: "+name+"\n", "newTag: latest\n", "newTag: "+tag+"\n", "image: tandem #", "image: "+image+" #")
	return errors.Join(
		copyTree("deployments", t.path(userFolder, "deployments"), own),
		copyTree(t.path("user/crds"), t.path(userFolder, "crds"), strings.NewReplacer()),
	)
}

func copyTree(from, to string, edit *strings.Replacer) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, []byte(edit.Replace(string(content))), info.Mode())
	})
}
