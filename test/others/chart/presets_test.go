// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// presets are the files of values that the chart brings, by name.
func presets(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/presets/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("presets: %q, %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = string(content)
	}
	return all
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

// deployed is what a preset installs.
func deployed(t *testing.T, name string) []object {
	t.Helper()
	rendered, err := render(t, presets(t)[name])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return parse(t, rendered)
}

// environment is that of a container; what comes from a field is "".
func environment(container object) map[string]string {
	all := map[string]string{}
	list, _ := container["env"].([]any)
	for _, e := range list {
		variable := object(e.(map[string]any))
		name, _ := variable.at("name").(string)
		all[name], _ = variable.at("value").(string)
	}
	return all
}

// TestBesideGPUOperator: what the NVIDIA GPU operator gives its own plugin (assets/state-device-plugin,
// transformDevicePluginCtrForCDI in controllers/object_controls.go and cmd/nvidia-validator/driver.go of
// NVIDIA/gpu-operator), and what driver-manager and mig-parted find its pods by.
func TestBesideGPUOperator(t *testing.T) {
	t.Attr("parity", "deployer/nvidia-gpu-operator")
	template, spec, container := daemonSet(t, deployed(t, "nvidia-gpu-operator"), "tandem-gpu")
	got := environment(container)
	for name, want := range map[string]string{
		"DEVICE_LIST_STRATEGY":       "cdi-annotations,cdi-cri",
		"NVIDIA_CDI_HOOK_PATH":       "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
		"NVIDIA_DRIVER_ROOT":         "/run/nvidia/driver",
		"PASS_DEVICE_SPECS":          "true",
		"MIG_STRATEGY":               "single",
		"NVIDIA_MIG_MONITOR_DEVICES": "all",
		"NVIDIA_VISIBLE_DEVICES":     "all",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if _, said := got["FAIL_ON_INIT_ERROR"]; said {
		t.Error("a node whose driver comes later would not be waited for")
	}
	paths := hostPaths(spec, container)
	for inside, outside := range map[string]string{
		"/driver-root": "/run/nvidia/driver", "/var/run/cdi": "/var/run/cdi",
		"/var/lib/kubelet/device-plugins": "/var/lib/kubelet/device-plugins",
	} {
		if paths[inside] != outside {
			t.Errorf("%s is the node's %q, want %s", inside, paths[inside], outside)
		}
	}
	if selector := text(spec["nodeSelector"]); selector != `{"nvidia.com/gpu.deploy.device-plugin":"true"}` {
		t.Errorf("node selector %s", selector)
	}
	if label := template.at("metadata", "labels", "app"); label != "nvidia-device-plugin-daemonset" {
		t.Errorf("the label app is %v", label)
	}
	if spec["runtimeClassName"] != "nvidia" || container.at("securityContext", "privileged") != true {
		t.Errorf("runtime class %v, %v", spec["runtimeClassName"], container["securityContext"])
	}
}

// TestBesideAMDOperator: the label of the operator's rule for Node Feature Discovery, and the rights and
// flags of its own plugin (internal/plugin/plugin.go in ROCm/gpu-operator).
func TestBesideAMDOperator(t *testing.T) {
	t.Attr("parity", "deployer/amd-gpu-operator")
	_, spec, container := daemonSet(t, deployed(t, "amd-gpu-operator"), "tandem-gpu")
	if got := labels(spec); !slices.Contains(got, "feature.node.kubernetes.io/amd-gpu") {
		t.Errorf("nodes are chosen by %q", got)
	}
	args := text(container["args"])
	if !strings.Contains(args, `"--vendor=amd"`) || !strings.Contains(args, `"--pulse=30"`) ||
		container.at("securityContext", "privileged") != true {
		t.Errorf("%s, %v", args, container["securityContext"])
	}
	if path := hostPaths(spec, container)["/var/lib/amd-metrics-exporter"]; path == "" {
		t.Error("the metrics exporter cannot be asked")
	}
}

// TestBesideSRIOVOperator: GPUs alone, and the run folder of a pod that has no volume for one.
func TestBesideSRIOVOperator(t *testing.T) {
	t.Attr("parity", "deployer/sriov-network-operator")
	objects := deployed(t, "sriov-network-operator")
	_, spec, container := daemonSet(t, objects, "tandem-gpu")
	const folder = "/var/lib/kubelet/device-plugins/tandem"
	if got := hostPaths(spec, container)[folder]; got != folder ||
		!strings.Contains(text(container["args"]), `"--run-dir=`+folder+`"`) {
		t.Errorf("the run folder is the node's %q: %v", got, container["args"])
	}
	for _, o := range objects {
		if strings.HasSuffix(o.name(), "-rdma") {
			t.Errorf("%s is installed too", o.name())
		}
	}
}

// pool is what the tests look at in a resource of a configuration.
type pool struct {
	ResourcePrefix, ResourceName string
	RdmaHcaMax                   int
	EnableExporterHealthCheck    bool
	Selectors                    map[string]any
}

// offered is the configuration of VFs that a preset installs.
func offered(t *testing.T, name string) (content string, list []pool) {
	t.Helper()
	for _, o := range deployed(t, name) {
		if o.at("kind") == "ConfigMap" {
			content, _ = o.at("data", "config.json").(string)
		}
	}
	var config struct{ ResourceList, ConfigList []pool }
	if err := json.Unmarshal([]byte(content), &config); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, content)
	}
	return content, append(config.ResourceList, config.ConfigList...)
}

// TestPoolsOfPresets: names and selectors are those under which the vendors' guides and charts offer them:
// example/crs in Mellanox/network-operator, configs/nicclusterpolicy in Azure/aks-rdma-infiniband,
// helm-charts-k8s/templates/device-plugin-config.yaml in ROCm/network-operator,
// terraform/files/nvidia-network-operator in oracle-quickstart/oci-hpc-oke,
// stable/aws-efa-k8s-device-plugin in aws/eks-charts. Thor 2's VFs are 1819
// (bnxt_pci_tbl in drivers/net/ethernet/broadcom/bnxt/bnxt.c).
func TestPoolsOfPresets(t *testing.T) {
	const nvidia = "feature.node.kubernetes.io/pci-15b3.present"
	for name, want := range map[string]struct {
		row       string
		resources []string // name and selectors
		label     string   // by one of these nodes are chosen
	}{
		"nvidia-network-operator": {"nvidia-network-operator",
			[]string{`nvidia.com/hostdev {"isRdma":true,"vendors":["15b3"]}`}, nvidia},
		"azure": {"azure",
			[]string{`rdma/ib {"isRdma":true,"linkTypes":["infiniband"],"vendors":["15b3"]}`}, nvidia},
		"azure-shared": {"azure",
			[]string{`/shared_ib {"linkTypes":["infiniband"],"vendors":["15b3"]}`}, nvidia},
		"broadcom-thor2": {"broadcom-thor2", []string{`tandem.dev/rdma_vf ` +
			`{"devices":["1819"],"drivers":["bnxt_en"],"isRdma":true,"vendors":["14e4"]}`}, sriovCapable},
		"connectx-pf-names": {"connectx-pf-names", []string{`tandem.dev/rdma_vf {"drivers":["mlx5_core"],` +
			`"isRdma":true,"pfNames":["rdma0","rdma1","rdma2","rdma3","rdma4","rdma5","rdma6","rdma7"],` +
			`"vendors":["15b3"]}`}, sriovCapable},
		"aws-efa": {"", []string{`vpc.amazonaws.com/efa {"drivers":["efa"],"isRdma":true,"vendors":["1d0f"]}`},
			"node.kubernetes.io/instance-type"},
		"oci": {"oci", []string{`nvidia.com/rdma-vf {"devices":["1018","101a","101c","101e"],` +
			`"drivers":["mlx5_core"],"isRdma":true,"vendors":["15b3"]}`}, sriovCapable},
		"amd-network-operator": {"amd-network-operator", []string{
			`amd.com/nic {"devices":["1002"],"drivers":["ionic"],"isRdma":true,"vendors":["1dd8"]}`,
			`amd.com/vnic {"devices":["1003"],"drivers":["ionic"],"isRdma":true,"vendors":["1dd8"]}`,
		}, "feature.node.kubernetes.io/amd-nic"},
	} {
		t.Run(name, func(t *testing.T) {
			if want.row != "" {
				t.Attr("parity", "deployer/"+want.row)
			}
			var got []string
			_, list := offered(t, name)
			for _, p := range list {
				got = append(got, p.ResourcePrefix+"/"+p.ResourceName+" "+text(p.Selectors))
			}
			if !slices.Equal(got, want.resources) {
				t.Errorf("offered are\n%q, want\n%q", got, want.resources)
			}
			_, spec, _ := daemonSet(t, deployed(t, name), "tandem-rdma")
			if got := labels(spec); !slices.Contains(got, want.label) {
				t.Errorf("nodes are chosen by %q, want %s", got, want.label)
			}
		})
	}
}

const sriovCapable = "feature.node.kubernetes.io/network-sriov.capable"

// TestMoreOfPresets: what pools have beside their names.
func TestMoreOfPresets(t *testing.T) {
	_, spec, _ := daemonSet(t, deployed(t, "nvidia-network-operator"), "tandem-rdma")
	if got := text(spec["nodeSelector"]); got != `{"network.nvidia.com/operator.mofed.wait":"false"}` {
		t.Errorf("NVIDIA's driver is not waited for: %s", got)
	}
	if _, list := offered(t, "azure-shared"); len(list) != 1 || list[0].RdmaHcaMax != 63 {
		t.Errorf("a NIC of Azure's is shared as %+v", list)
	}
	_, list := offered(t, "amd-network-operator")
	_, spec, container := daemonSet(t, deployed(t, "amd-network-operator"), "tandem-rdma")
	if path := hostPaths(spec, container)["/var/lib/amd-metrics-exporter"]; path == "" ||
		!list[0].EnableExporterHealthCheck || !list[1].EnableExporterHealthCheck {
		t.Errorf("the health of AMD's NICs is not asked for: %q, %+v", path, list)
	}
}

// TestPresetsAreRead: tandem-rdma reads the configuration of every preset, and has nothing to warn of.
func TestPresetsAreRead(t *testing.T) {
	for name := range presets(t) {
		if name == "sriov-network-operator" {
			continue // GPUs alone
		}
		content, list := offered(t, name)
		file := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := pools.ReadConfig(file)
		if err != nil || len(config.Resources) != len(list) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, warning := range config.Warnings {
			t.Errorf("%s: %s", name, warning)
		}
	}
}

// TestPresetsAreDocumented: a page about deployers names each preset.
func TestPresetsAreDocumented(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"deployers*.md", "*-operator.md", "providers.md"} {
		files, err := filepath.Glob("../../../docs/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no page %s: %v", pattern, err)
		}
		pages = append(pages, files...)
	}
	var text strings.Builder
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	for name := range presets(t) {
		if !strings.Contains(text.String(), "`"+name+"`") && !strings.Contains(text.String(), "presets/"+name+".yaml") {
			t.Errorf("no page about deployers names the preset %s", name)
		}
	}
}

// TestPresetsTogether: one for GPUs and one for VFs.
func TestPresetsTogether(t *testing.T) {
	file := func(name string) string { return filepath.Join(chartDir, "presets", name+".yaml") }
	for _, gpus := range []string{"nvidia-gpu-operator", "amd-gpu-operator"} {
		for _, vfs := range slices.Sorted(maps.Keys(presets(t))) {
			values, err := helm.Values(file(gpus), file(vfs))
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := render(t, text(values))
			if err != nil {
				t.Fatalf("%s and %s: %v", gpus, vfs, err)
			}
			_, spec, _ := daemonSet(t, parse(t, rendered), "tandem-gpu")
			_, alone, _ := daemonSet(t, deployed(t, gpus), "tandem-gpu")
			if !strings.HasSuffix(vfs, "gpu-operator") && (text(spec["nodeSelector"]) != text(alone["nodeSelector"]) ||
				text(spec["affinity"]) != text(alone["affinity"])) {
				t.Errorf("%s and %s: other nodes than without", gpus, vfs)
			}
		}
	}
}
