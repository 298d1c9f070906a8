// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"encoding/json"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Restricted is the configuration that pairs need.
var Restricted = v1alpha1.Kubelet{
	TopologyManagerPolicy: "restricted", TopologyManagerScope: "container", CPUManagerPolicy: "none",
	MemoryManagerPolicy: "None",
}

// configz returns the answer of a kubelet's /configz.
func configz(policy v1alpha1.Kubelet) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		return json.Marshal(map[string]any{"kubeletconfig": policy})
	}
}
