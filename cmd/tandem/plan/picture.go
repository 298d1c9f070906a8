// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

// Picture returns the machine with the container's planned devices: both devices of a pair have one colour.
func (p *Plan) Picture(title string, n *machine.Node) *picture.Node {
	drawn := machine.NewMatrix(n, false).Picture(title, n.Tree)
	drawn.Title = fmt.Sprintf("%s and %s on %s", document.Count(len(p.GPUs), "GPU"),
		document.Count(len(p.VFs), "VF"), title)
	drawn.Summary = strings.Split(p.Reason, "; ")
	if p.Note != "" {
		drawn.Notes = append(drawn.Notes, p.Note)
	}
	owners := p.owners()
	for i := range drawn.Cards {
		c := &drawn.Cards[i]
		if c.Kind == picture.NIC && len(c.Devices) == 0 { // the NIC itself counts
			c.Devices = []picture.Device{{ID: c.Address.String(), Address: c.Address}}
		}
		for j := range c.Devices {
			d := &c.Devices[j]
			d.State = picture.Free
			if owner, planned := owners[d.ID]; planned {
				d.State, d.Owner = picture.Allocated, owner
			}
		}
	}
	return drawn
}

// owners returns the pair of every planned device: the first pair, if GPUs share a VF or VFs share a GPU.
func (p *Plan) owners() map[string]string {
	owners := map[string]string{}
	for i, pair := range p.Pairs {
		owner := cmp.Or(owners[pair.GPU], owners[pair.VF], fmt.Sprintf("pair %d, %s", i+1, pair.Distance))
		owners[pair.GPU], owners[pair.VF] = owner, owner
	}
	for _, id := range slices.Concat(p.GPUs, p.VFs) {
		owners[id] = cmp.Or(owners[id], "in no pair")
	}
	return owners
}
