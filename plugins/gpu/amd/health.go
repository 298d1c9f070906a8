// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// How long each source of health may take to answer. The first answer is waited for at the start, before the
// GPUs are offered; later ones hold up nothing but the next.
const (
	firstPatience = 500 * time.Millisecond
	patience      = 5 * time.Second // as AMD's own plugin (internal/pkg/exporter/health.go)
)

// verdicts says of devices, by their IDs, whether they are healthy. Of those that are not in it nothing is
// known.
type verdicts map[string]bool

// Health is a source of health beside sysfs. It returns nil where the source is not there.
type Health func(ctx context.Context) (map[string]bool, error)

// judge decides which devices are healthy, and says why others are not. A device needs a render node; where
// no GPU is in the KFD topology, none can be used for compute, whatever it looks like in PCI; and another
// source may know of a fault that does not show in sysfs. Each of them can find a device unhealthy and none
// of them overrules another.
func (b *Backend) judge(resources map[string][]gpu.Device, nodes []node) (notes []string) {
	usable := slices.ContainsFunc(nodes, func(n node) bool { return n.gpu || n.hidden })
	if !usable {
		notes = append(notes, "no GPU in "+kfdNodes+": all GPUs are unhealthy until amdkfd has one")
	}
	sources, silent := b.ask()
	notes = append(notes, silent...)
	for _, devices := range resources {
		for i := range devices {
			d := &devices[i]
			d.Healthy = usable
			if !slices.ContainsFunc(d.Nodes, func(path string) bool { return strings.HasPrefix(path, renderNode) }) {
				d.Healthy = false
				notes = append(notes, d.ID+": no render node: unhealthy")
			}
			for _, name := range slices.Sorted(maps.Keys(sources)) {
				if !sources[name].of(d) {
					d.Healthy = false
					notes = append(notes, fmt.Sprintf("%s: unhealthy, says %s", d.ID, name))
				}
			}
		}
	}
	slices.Sort(notes)
	return notes
}

// of is the verdict on a device: its own, or else that on its card, for a partition is no better than that.
func (v verdicts) of(d *gpu.Device) bool {
	for _, id := range []string{d.ID, d.Card.String()} {
		if healthy, ok := v[id]; ok {
			return healthy
		}
	}
	return true
}

// ask asks the sources of health. One that does not answer finds nothing wrong.
func (b *Backend) ask() (answers map[string]verdicts, notes []string) {
	limit := patience
	if !b.asked {
		b.asked, limit = true, firstPatience
	}
	answers = map[string]verdicts{}
	for name, source := range b.health {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		found, err := source(ctx)
		cancel()
		if err != nil {
			notes = append(notes, fmt.Sprintf("health of the GPUs is judged without %s: %v", name, err))
			continue
		}
		answers[name] = canonical(found)
	}
	return answers, notes
}

// canonical writes addresses as device IDs do.
func canonical(found map[string]bool) verdicts {
	v := verdicts{}
	for id, healthy := range found {
		if address, err := topology.ParseAddress(id); err == nil {
			id = address.String()
		}
		v[id] = healthy
	}
	return v
}
