// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/golden"
	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// presets are the files of values that the chart brings, by name.
func presets(t *testing.T) map[string]string {
	t.Helper()
	return readValues(t, chartDir+"/presets/*.yaml", 10)
}

// everyValues are all values that are rendered: the cases and the presets.
func everyValues(t *testing.T) map[string]string {
	t.Helper()
	all := cases(t)
	for name, values := range presets(t) {
		all["preset "+name] = values
	}
	return all
}

// TestPresets: what presets change is what the operators give their own plugins, and the names and
// selectors under which the vendors' guides and charts offer VFs: assets/state-device-plugin,
// transformDevicePluginCtrForCDI in controllers/object_controls.go and cmd/nvidia-validator/driver.go in
// NVIDIA/gpu-operator, internal/plugin/plugin.go in ROCm/gpu-operator, example/crs in
// Mellanox/network-operator, configs/nicclusterpolicy in Azure/aks-rdma-infiniband,
// helm-charts-k8s/templates/device-plugin-config.yaml in ROCm/network-operator,
// terraform/files/nvidia-network-operator in oracle-quickstart/oci-hpc-oke,
// stable/aws-efa-k8s-device-plugin in aws/eks-charts. Thor 2's VFs are 1819 (bnxt_pci_tbl in
// drivers/net/ethernet/broadcom/bnxt/bnxt.c).
func TestPresets(t *testing.T) {
	rows := map[string]string{"azure-shared": "azure", "aws-efa": ""} // of the parity checklist; else the name
	e := newEffects(t)
	defaults, err := e.read(helm.Newest, nil)
	ready(t, err)
	for name, values := range presets(t) {
		t.Run(name, func(t *testing.T) {
			row, other := rows[name]
			if !other {
				row = name
			}
			if row != "" {
				t.Attr("parity", "deployer/"+row)
			}
			changed, err := e.read(helm.Newest, given(t, values))
			ready(t, err)
			golden.Check(t, filepath.Join("testdata/presets", name+".txt"), e.of(defaults, changed))
		})
	}
}

// TestConfigurationsAreRead: tandem-rdma reads each configuration that the chart writes, and has nothing to
// warn of.
func TestConfigurationsAreRead(t *testing.T) {
	for name, values := range everyValues(t) {
		for _, o := range install(t, values) {
			data, _ := o["data"].(map[string]any)
			if o.name() != "ConfigMap/tandem-rdma" {
				data = nil
			}
			for key, content := range data {
				file := filepath.Join(t.TempDir(), "config.json")
				ready(t, os.WriteFile(file, []byte(content.(string)), 0o600))
				config, err := pools.ReadConfig(file)
				if err != nil || len(config.Resources) == 0 || len(config.Warnings) > 0 {
					t.Errorf("%s: %s: %v, %+v", name, key, err, config)
				}
			}
		}
	}
}

// TestPresetsAreDocumented: a page about deployers names each preset.
func TestPresetsAreDocumented(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"deployers*.md", "*-operator.md", "providers.md"} {
		pages, err := filepath.Glob("../../../docs/" + pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("no page %s: %v", pattern, err)
		}
		for _, page := range pages {
			content, err := os.ReadFile(page)
			ready(t, err)
			text.Write(content)
		}
	}
	for name := range presets(t) {
		if !strings.Contains(text.String(), "`"+name+"`") && !strings.Contains(text.String(), "presets/"+name+".yaml") {
			t.Errorf("no page about deployers names the preset %s", name)
		}
	}
}

// TestPresetsTogether: one for GPUs and one for VFs. The GPUs' nodes are those of the first.
func TestPresetsTogether(t *testing.T) {
	nodes := func(presets ...string) string {
		var files []string
		for _, name := range presets {
			files = append(files, filepath.Join(chartDir, "presets", name+".yaml"))
		}
		values, err := helm.Values(files...)
		ready(t, err)
		set := objectNamed(install(t, text(values)), "DaemonSet/tandem-gpu")
		return text(set.at("spec", "template", "spec", "nodeSelector")) +
			text(set.at("spec", "template", "spec", "affinity"))
	}
	for _, gpus := range []string{"nvidia-gpu-operator", "amd-gpu-operator"} {
		for _, vfs := range slices.Sorted(maps.Keys(presets(t))) {
			if both := nodes(gpus, vfs); !strings.HasSuffix(vfs, "gpu-operator") && both != nodes(gpus) {
				t.Errorf("%s and %s: other nodes than without: %s", gpus, vfs, both)
			}
		}
	}
}
