// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// preparedClaims is the DRA driver's checkpoint on a node in the mode of device plugins.
type preparedClaims struct {
	path   string
	damage string // reason for unknown devices of claims, "" for known ones
}

func (n Node) readClaims(a *access) preparedClaims {
	dir := filepath.Join(n.KubeletDir, "plugins", mode.Driver)
	c := preparedClaims{path: filepath.Join(dir, mode.ClaimsFile)}
	if _, err := mode.ReadHolders(dir, n.CDIDir); err != nil && !a.denied(c.path, err) {
		c.damage = fmt.Sprint(err)
	}
	return c
}

// unknownClaims finds claims of unknown devices.
func unknownClaims(c preparedClaims) []Finding {
	return finding.When(c.damage != "", Finding{
		ID: "claims", Severity: Error,
		Summary:  "The devices of prepared claims are not known.",
		Evidence: []string{c.damage},
		Why: "Any device may belong to a pod with a claim, of the time when this node was in the mode of DRA: " +
			"a plugin that starts now offers none.",
		Fix: []string{mode.ClaimsRemedy(filepath.Dir(c.path))},
	})
}
