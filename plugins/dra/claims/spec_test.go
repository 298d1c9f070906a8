// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/container"
)

// Where all is in CDI devices of others there is no spec of ours: CDI refuses devices without edits.
func TestNothingToEdit(t *testing.T) {
	n := newNode(t, "nv-h100-oci", 4, toldVFs, true)
	c := Claim{UID: "uid", Devices: []Prepared{
		{Request: "gpus", Device: "gpu", Group: "g"}, {Request: "gpus", Group: "g"},
	}}
	edits := container.Edits{Named: container.Named{Devices: []string{"nvidia.com/gpu=0"}}}
	environments := map[string]*environment{"g": {edits: edits}}
	c.setCDINames(environments)
	if diff := cmp.Diff([]string{"nvidia.com/gpu=0"}, c.Devices[0].CDI); diff != "" || c.Devices[1].CDI != nil {
		t.Errorf("%s, %v", diff, c.Devices[1].CDI)
	}
	if err := n.writeSpec(c, environments); err != nil {
		t.Fatal(err)
	}
	if exists(n.specPath("uid")) {
		t.Error("a spec without edits")
	}
}

// The file says whose spec it is.
func TestClaimOfSpec(t *testing.T) {
	for name, want := range map[string]string{
		"tandem.dev-claim_5e0c.json": "5e0c", "tandem.dev-claim_.json": "", "tandem.dev-claim_5e0c.yaml": "",
		"nvidia.com-claim_5e0c.json": "",
	} {
		if uid, ok := coordination.ClaimOfSpec(name); ok != (want != "") || ok && uid != want {
			t.Errorf("%s: %q, %v; want %q", name, uid, ok, want)
		}
	}
}
