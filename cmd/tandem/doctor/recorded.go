// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// recordedFacts returns the facts that a recording has: the hardware, and the request shapes under the policy
// that Tandem requires.
func (n Node) recordedFacts() facts {
	var a access // a recording closes nothing
	assumed := managers.Facts{Settings: configuration.Settings{Policy: managers.Restricted}}
	return facts{recorded: true, hardware: n.readHardware(&a), shapes: n.readShapes(assumed)}
}

// unrecorded finds that subjects are missing in a recording.
func unrecorded(recorded bool) []Finding {
	return finding.When(recorded, Finding{
		ID: "recording", Severity: Unknown,
		Summary: "A recording tells nothing of the kubelet, the plugins, containers and device nodes.",
		Evidence: []string{
			"the hardware is judged, and requests of containers for policy " + managers.Restricted +
				" on the empty node, without CPUs",
		},
		Why: "The report lacks these checks.",
		Fix: []string{"run tandem doctor on the node, as root"},
	})
}
