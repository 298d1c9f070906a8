// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TestDefaultPool: the pool of the manifests has the VFs of recent ConnectX and BlueField NICs, also
// those of a guest without their PFs.
func TestDefaultPool(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../deployments/base/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Data map[string]string }
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	config := write(t, "config.json", object.Data["config.json"])
	for _, machine := range []string{
		recorded("nv-gb300-aks-derived"), withVFs(t, "nv-gb200-oke-derived", 1),
		withVFs(t, "nv-vera-derived", 1), withVFs(t, "nv-bf3-derived", 1),
	} {
		p := planned(t, "--gpus", "4", "--vfs", "4", "--machine", machine, "--config", config)
		if len(p.VFs) != 4 || len(p.Pairs) != 4 || p.Note != "" {
			t.Errorf("%s: %+v", machine, p)
		}
	}
}

// TestEmptyPool: a selector without a match leads to the command that shows the reason.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	config := write(t, "config.json", `{"resourceList": [{"resourceName": "a", "selectors": {"drivers": ["none"]}}]}`)
	code, _, stderr := run("plan", "--vfs", "1", "--machine", recorded("oci-mi300x-derived"), "--config", config)
	if want := "0 VFs are free; tandem doctor --config " + config; code != cli.ExitError ||
		!strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %s; want %q", code, stderr, want)
	}
}
