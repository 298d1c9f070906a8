// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
)

// rephrase adapts findings to a reader who is not on the node: the source of the kubelet's settings is the
// kubelet's configz, and the kubelet is changed by a script.
func (n Node) rephrase(findings []Finding) []Finding {
	if n.ReadElsewhere == "" {
		return findings
	}
	roll := "deployments/kubelet/roll.sh fix " + n.ReadElsewhere
	words := []string{
		managers.FixKubelet + " --static-cpus",
		roll + ", with FLAGS=--static-cpus in deployments/kubelet/daemonset-fix.yaml",
		managers.FixKubelet, roll,
	}
	if n.Config != "" {
		words = append(words, n.Config, "configz of the kubelet of "+n.ReadElsewhere)
	}
	adapt := strings.NewReplacer(words...)
	for i := range findings {
		for _, list := range [][]string{findings[i].Evidence, findings[i].Fix} {
			for j, text := range list {
				list[j] = adapt.Replace(text)
			}
		}
	}
	return findings
}
