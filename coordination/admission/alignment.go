// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// findMisalignment returns the refusal for a grant if the pod requires alignment and a pair is not on a
// single switch. The container is refused when complete, or as soon as the best plan for the rest is known to
// be insufficient; never on a guess.
func findMisalignment(b *books, g grant, alignment intent.Alignment) refusal {
	if !isRequired(g.container, alignment) || g.isGuess() {
		return refusal{}
	}
	pairs := pairsOf(b, g.container, g.isSure())
	if p := g.plan; pairs == nil && p != nil && p.choice != nil && !p.predicted && g.container.Asker != nil &&
		g.container.Asker.Exact {
		pairs = p.choice.Pairs
	}
	apart := slices.IndexFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.Direct() })
	if apart < 0 {
		return refusal{}
	}
	devices := fmt.Sprintf("%d %s %s", len(g.ids), g.name, strings.Join(g.ids, ", "))
	return newMisalignment(b, pairs, pairs[apart], devices, g.container, alignment)
}

// isRequired reports whether alignment is required for each candidate of a container. Alignment is the
// default for pods.
func isRequired(c *asking.Container, alignment intent.Alignment) bool {
	if c.Asker == nil {
		return alignment == intent.Required
	}
	permits := func(own intent.Alignment) bool { return cmp.Or(own, alignment) != intent.Required }
	return !slices.ContainsFunc(c.Asker.Alignments(), permits)
}

// newMisalignment returns a refusal with the separated pair, the switch of its GPU, and the free VFs there.
func newMisalignment(
	b *books, pairs []placement.Pair, apart placement.Pair, devices string, c *asking.Container,
	alignment intent.Alignment,
) refusal {
	near, owners := describeNear(b, apart.GPU.Address, c)
	sentence := fmt.Sprintf("refuse %s: alignment is required and only %d of %d pairs can be on one switch: "+
		"GPU %s and VF %s are %s apart; %s", devices, placement.Together(pairs), len(pairs), apart.GPU.Address,
		apart.VF.Address, apart.Distance.Level, near)
	return refusal{said: sentence + " (" + requirement(alignment) + ")", owners: owners}
}

// requirement returns the origin of the requirement: the administrator, or the pod alone. The text ends a
// refusal, in brackets; the kubelet appends ", which is unexpected".
func requirement(alignment intent.Alignment) string {
	if alignment == intent.Required {
		return fmt.Sprintf("the plugins' flag --alignment=%s asks that of every pod", intent.Required)
	}
	return intent.Relaxation
}

// describeNear describes the VFs on the switch of a GPU, and returns the holders besides a container.
func describeNear(b *books, gpu topology.Address, own *asking.Container) (near string, owners []string) {
	free, all, owners := vfsNear(b, gpu, own)
	name := b.tree.Switch(gpu)
	if !topology.IsSwitch(name) {
		return fmt.Sprintf("the GPU is on no switch (%s)", name), owners
	}
	near = fmt.Sprintf("below switch %s %d of %d VFs are free", name, free, all)
	if len(owners) > 0 {
		near += ", the rest is held"
	}
	return near, owners
}

// vfsNear counts the VFs on the switch of a GPU, and returns the holders besides a container.
func vfsNear(b *books, gpu topology.Address, own *asking.Container) (free, all int, owners []string) {
	for _, r := range b.resources.OfKind(device.VF) {
		for id, vf := range r.Devices {
			if !b.tree.Distance(gpu, vf.Address).Level.Direct() {
				continue
			}
			all++
			if vf.Healthy && b.isFree(r.Name, id) {
				free++
			}
			owners = append(owners, b.names(r.Name, []string{id}, own)...)
		}
	}
	slices.Sort(owners)
	return free, all, slices.Compact(owners)
}
