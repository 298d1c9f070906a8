// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// policy makes the function that tells the policy of the node's Topology Manager: as the kubelet's
// configuration in its folder says, "" where that is not there or says nothing, since drop-ins and flags can
// say it too.
func (n *Node) policy() func() hints.Policy {
	read := bounded.Read(n.config.Log, bounded.File, func() (hints.Policy, error) {
		return readPolicy(filepath.Join(n.config.KubeletDir, configuration.FileName))
	})
	return func() hints.Policy {
		policy, err := read()
		if err != nil {
			return "" // which says as much
		}
		return policy
	}
}

// maxConfiguration bounds the kubelet's configuration, in bytes.
const maxConfiguration = 1 << 20

func readPolicy(name string) (hints.Policy, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxConfiguration {
		return "", fmt.Errorf("read %s: it has %d bytes, more than %d", name, info.Size(), maxConfiguration)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var says struct {
		Policy string `json:"topologyManagerPolicy"`
	}
	if _, err := configuration.Decode(content, &says); err != nil || says.Policy == "" {
		return "", err
	}
	return hints.ParsePolicy(says.Policy)
}
