// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

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
