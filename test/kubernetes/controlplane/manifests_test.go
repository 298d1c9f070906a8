// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import "github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"

// The manifests as they are shipped.
const (
	manifests = "../../../deployments/dra"
	templates = "../../../deployments/dra/claim-templates"
)

// apply applies a folder of manifests, in a namespace for what has none of its own.
func (c *cluster) apply(folder string) {
	c.t.Helper()
	if err := manifest.ApplyFolder(c.t.Context(), c.Admin(), folder, namespace); err != nil {
		c.t.Fatal(err)
	}
}
