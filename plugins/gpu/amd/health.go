// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Time limits of each source of health. The first query delays the offer of the GPUs at the start; later ones
// delay only the next query.
const (
	firstPatience = 500 * time.Millisecond
	patience      = 5 * time.Second // as AMD's own plugin (internal/pkg/exporter/health.go)
)

// verdicts maps device IDs to their health. Absent devices are unknown.
type verdicts map[string]bool

// Health queries a source of health besides sysfs. It returns nil if the source is absent.
type Health func(ctx context.Context) (map[string]bool, error)

// judge sets the health of the devices and returns reasons for unhealthy ones. A device needs a render node;
// without any GPU in the KFD topology, no device can compute; and other sources may report faults that sysfs
// does not show. Each source can mark a device unhealthy, and none overrules another.
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
			d.Healthy = true
			if !usable {
				d.Fail("no GPU in " + kfdNodes)
			}
			if !slices.ContainsFunc(d.Nodes, func(path string) bool { return strings.HasPrefix(path, renderNode) }) {
				d.Fail("no render node")
				notes = append(notes, d.ID+": no render node: unhealthy")
			}
			for _, path := range append([]string{ComputeNode}, d.Nodes...) {
				if container.LacksNode(b.dev, path) {
					d.Fail("no device node " + path + ": load the kernel module amdgpu")
					notes = append(notes, d.ID+": no device node "+path+": unhealthy")
				}
			}
			for _, name := range slices.Sorted(maps.Keys(sources)) {
				if !sources[name].of(d) {
					d.Fail("unhealthy, says " + name)
					notes = append(notes, fmt.Sprintf("%s: unhealthy, says %s", d.ID, name))
				}
			}
		}
	}
	slices.Sort(notes)
	return notes
}

// of returns the verdict on a device, or else on its card, because a partition depends on its card.
func (v verdicts) of(d *gpu.Device) bool {
	for _, id := range []string{d.ID, d.Card.String()} {
		if healthy, ok := v[id]; ok {
			return healthy
		}
	}
	return true
}

// ask queries the sources of health. A source without an answer reports no fault.
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
