// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

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
		ready(t, os.WriteFile(file, []byte(config), 0o600))
		read, err := pools.ReadConfig(file)
		if found := err != nil || len(read.Warnings) > 0; found != (c.want != "") {
			t.Errorf("%s: the daemon finds %v, %v; the chart %q", config, read, err, c.want)
		}
	}
}
