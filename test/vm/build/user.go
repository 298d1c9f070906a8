package build

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

// operator is the module of the Prometheus operator, whose kinds the chart and deployments/monitoring use.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.93.1"

// user makes what a user has beside kubectl: Helm, kubectl's plugin, and in the cluster the Prometheus
// operator's kinds.
func (c *Cache) user(ctx context.Context, bin string) error {
	key, err := moduleKey(helmModule)
	if err != nil {
		return err
	}
	err = c.make(ctx, "user", key+operator, 20*time.Minute, func(ctx context.Context) error {
		if err := os.MkdirAll(c.Path("user/crds"), 0o755); err != nil {
			return err
		}
		if err := c.operatorKinds(ctx); err != nil {
			return err
		}
		return goBuild(ctx, helmModule, helmProgram, c.Path("user/helm"), "-s -w")
	})
	if err != nil {
		return err
	}
	return c.plugin(bin)
}

// plugin puts Tandem's own program where kubectl finds it as its plugin.
func (c *Cache) plugin(bin string) error {
	link := c.Path("user/kubectl-tandem")
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(bin, "tandem"), link)
}

// operatorKinds copies the definitions of the two kinds out of the operator's module.
func (c *Cache) operatorKinds(ctx context.Context) error {
	output, err := host.Run(ctx, host.InFolder(c.Dir, "go", "mod", "download", "-json", operator))
	if err != nil {
		return err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return fmt.Errorf("go mod download %s: %w", operator, err)
	}
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		file := "monitoring.coreos.com_" + kind + ".yaml"
		from := filepath.Join(module.Dir, "example/prometheus-operator-crd", file)
		if err := copyFile(from, c.Path("user/crds", file), 0o644); err != nil {
			return err
		}
	}
	return nil
}
