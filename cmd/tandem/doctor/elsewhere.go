// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
)

// rephrase gives evidence and remedies the paths of the node instead of those below the root of the kubelet's
// process and, for a reader who is not on the node, names the kubelet's configz as the source of its settings
// and the script that changes the kubelet.
func (n Node) rephrase(findings []Finding, root string) []Finding {
	adapt := strings.NewReplacer(n.wordsElsewhere()...)
	for i := range findings {
		for _, list := range [][]string{findings[i].Evidence, findings[i].Fix} {
			for j, text := range list {
				list[j] = settings.OnNode(root, adapt.Replace(text))
			}
		}
	}
	return findings
}

// wordsElsewhere returns texts and their replacements for a reader who is not on the node.
func (n Node) wordsElsewhere() []string {
	if n.ReadElsewhere == "" {
		return nil
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
	return words
}
