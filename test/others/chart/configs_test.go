// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// configured is a DaemonSet whose configuration a label of the node names.
type configured struct {
	pod            object
	init, sidecar  object
	daemon, volume object
}

// byLabel finds it among what is rendered; init is nil where no label is asked.
func byLabel(t *testing.T, objects []object, daemon string) (c configured) {
	t.Helper()
	for _, o := range objects {
		if o.name() == "DaemonSet/"+daemon {
			c.pod = o.at("spec", "template", "spec").(map[string]any)
		}
	}
	all, _ := c.pod["initContainers"].([]any)
	if len(all) == 1 {
		c.init = all[0].(map[string]any)
	}
	for _, other := range c.pod["containers"].([]any) {
		if container := object(other.(map[string]any)); container["name"] == daemon {
			c.daemon = container
		} else {
			c.sidecar = container
		}
	}
	for _, v := range c.pod["volumes"].([]any) {
		if v.(map[string]any)["name"] == "available-configs" {
			c.volume = v.(map[string]any)
		}
	}
	return c
}

// said is what a container's arguments say.
func said(c object, name string) string {
	args, _ := c["args"].([]any)
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg.(string), "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// TestConfigsByLabel: config-manager links a configuration where the daemon reads it, of a label by either
// plugin, and what it links is in the pod at the same place.
func TestConfigsByLabel(t *testing.T) {
	rendered, err := render(t, cases(t)["configs"])
	if err != nil {
		t.Fatal(err)
	}
	objects := parse(t, rendered)
	for daemon, label := range map[string]string{
		"tandem-gpu": "nvidia.com/device-plugin.config", "tandem-rdma": "tandem.dev/rdma.config",
	} {
		c := byLabel(t, objects, daemon)
		for _, manager := range []object{c.init, c.sidecar} {
			if said(manager, "node-label") != label ||
				said(manager, "config-file-dst") != said(c.daemon, "config-file") {
				t.Errorf("%s: %v", daemon, manager["args"])
			}
			args := manager["args"].([]any)
			if !slices.Contains(args, any("--wait-on-error")) ||
				slices.Contains(args, any("--oneshot")) != (manager["name"] == c.init["name"]) {
				t.Errorf("%s: %v", daemon, args)
			}
			for _, folder := range []string{
				said(manager, "config-file-srcdir"), filepath.Dir(said(manager, "config-file-dst")),
			} {
				if where := mounted(manager, folder); where == "" || where != mounted(c.daemon, folder) {
					t.Errorf("%s: %s is of the volumes %q and %q", daemon, folder, where, mounted(c.daemon, folder))
				}
			}
		}
		if said(c.sidecar, "process-to-signal") != daemon || c.pod["shareProcessNamespace"] != true ||
			c.pod["automountServiceAccountToken"] != true {
			t.Errorf("%s: config-manager cannot reach the daemon, or the API server", daemon)
		}
	}
	if got := byLabel(t, objects, "tandem-gpu").volume.at("configMap", "name"); got != "plugin-config" {
		t.Errorf("the configurations of GPUs are %v", got)
	}
	if got := byLabel(t, objects, "tandem-rdma").volume.at("configMap", "name"); got != "tandem-rdma" {
		t.Errorf("the configurations of VFs are %v", got)
	}
}

// mounted names the volume that a container has at a folder.
func mounted(container object, folder string) string {
	for _, m := range container["volumeMounts"].([]any) {
		if mount := m.(map[string]any); mount["mountPath"] == folder {
			return mount["name"].(string)
		}
	}
	return ""
}

// TestConfigsOfVFs: each configuration is what was given, with the exports; one called default is always
// there.
func TestConfigsOfVFs(t *testing.T) {
	for given, want := range map[string]map[string]string{ // name to keys
		"other: {resourceList: [{resourceName: a}]}": {
			"default": "resourceList", "other": "resourceList",
		},
		"default: {configList: [{resourceName: a, selectors: {ifNames: [ib0]}}]}": {"default": "configList"},
	} {
		rendered, err := render(t, "rdma: {exports: {alias: true}, configs: {map: {"+given+"}}}")
		if err != nil {
			t.Fatal(err)
		}
		objects := parse(t, rendered)
		at := slices.IndexFunc(objects, func(o object) bool { return o.name() == "ConfigMap/tandem-rdma" })
		got := map[string]string{}
		for name, content := range objects[at]["data"].(map[string]any) {
			got[name] = keysOf(t, name, content.(string))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
	}
}

// keysOf are those of a configuration that tandem-rdma can read.
func keysOf(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pools.ReadConfig(file); err != nil || !strings.Contains(content, `"alias": true`) {
		t.Errorf("%s: %v\n%s", name, err, content)
	}
	var keys map[string]any
	if err := json.Unmarshal([]byte(content), &keys); err != nil {
		t.Fatal(err)
	}
	return strings.Join(slices.Sorted(maps.Keys(keys)), " ")
}

// TestNobodyReadsLabelsByDefault: neither the right nor the program is there without configurations to choose
// among.
func TestNobodyReadsLabelsByDefault(t *testing.T) {
	for _, values := range []string{
		"", "rdma: {existingConfigMap: a}", "gpu: {enabled: false, configs: {name: a}}", "mode: dra",
	} {
		rendered, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(rendered, "config-manager") || strings.Contains(rendered, "-configs\n") {
			t.Errorf("%s: there is a config-manager:\n%s", values, rendered)
		}
	}
}

// TestMistakesInConfig: the schema rejects a configuration in which tandem-rdma finds an error or an
// unknown key.
func TestMistakesInConfig(t *testing.T) {
	const list = `{"resourceList": [{"resourceName": "vf"%s}]}`
	const shared = `{"configList": [{"resourceName": "hca", "rdmaHcaMax": 1%s}]}`
	for _, c := range []struct{ form, keys, want string }{
		{list, ``, ""},
		{list, `, "selectors": {"vendors": ["15b3"], "IsRdma": true}`, ""},
		{list, `, "selectors": [{"vendors": ["15b3"]}, {"pfNames": ["eth0#0-3"]}]`, ""},
		{list, `, "excludeTopology": "auto", "checkHealthOnPf": true, "tandem": {"alias": true}`, ""},
		{list, `, "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}`, ""},
		{list, `, "selectors": {"IsRdma": true, "NeedVhostNet": true}, "SelectorObjs": null`, ""}, // of the operator
		{list, `, "selectors": {"IsRdma": true, "NeedVhostNet": true}, "SelectorObj": null`, ""},
		{list, `, "deviceType": ""`, ""}, // of AMD's network operator
		{shared, `, "selectors": {"deviceIDs": ["101e"], "ifNames": ["ib0"]}, "excludeTopology": true`, ""},
		{shared, `, "devices": ["ib0"]`, ""},
		{list, `, "excludeTopolgy": true`, "additional properties 'excludeTopolgy' not allowed"},
		{list, `, "vendors": ["15b3"]`, "additional properties 'vendors' not allowed"},
		{list, `, "selectors": {"vendor": ["15b3"]}`, "additional properties 'vendor' not allowed"},
		{list, `, "selectors": [{"isRDMA": true}, {"driver": "x"}]`, "additional properties 'driver' not allowed"},
		{list, `, "tandem": {"pair": true}`, "additional properties 'pair' not allowed"},
		{list, `, "tandem": {"variables": ["NCCL"]}`, "/tandem/variables/0"},
		{list, `, "excludeTopology": "maybe"`, "/excludeTopology"},
		{list, `, "selectors": {"vendors": "15b3"}`, "/selectors/vendors"},
		{list, `, "selectors": {"devices": [1018]}`, "/selectors/devices/0"},
		{list, `, "deviceType": "netdevice"`, "/deviceType"},
		{list, `, "checkHealthOnPf": "yes"`, "/checkHealthOnPf"},
		{shared, `, "devices": ["ib0"], "rdmaHcaMaxx": 2`, "additional properties 'rdmaHcaMaxx' not allowed"},
		{shared, `, "selectors": {"devices": ["ib0"]}`, "additional properties 'devices' not allowed"},
		{shared, `, "devices": ["ib0"], "excludeTopology": 1`, "/excludeTopology"},
	} {
		config := fmt.Sprintf(c.form, c.keys)
		values := config
		if c.form == shared { // without the chart's own list
			values = strings.Replace(config, "{", `{"resourceList": null, `, 1)
		}
		_, err := render(t, `{"rdma": {"config": `+values+`}}`)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", config, err, c.want)
		}
		file := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := pools.ReadConfig(file)
		if found := err != nil || len(read.Warnings) > 0; found != (c.want != "") {
			t.Errorf("%s: the daemon finds %v, %v; the chart %q", config, read, err, c.want)
		}
	}
}
