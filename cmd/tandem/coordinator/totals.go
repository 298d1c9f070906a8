// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Totals counts devices as the kubelet does: every partition, every VF and every replica is one.
type Totals struct {
	GPUs  Count `json:"gpus"`
	VFs   Count `json:"vfs"`
	Pairs int   `json:"pairs"` // of free devices, each pair on one switch
}

// Add adds the counts of another node.
func (t *Totals) Add(other Totals) {
	t.GPUs.Free, t.GPUs.All = t.GPUs.Free+other.GPUs.Free, t.GPUs.All+other.GPUs.All
	t.VFs.Free, t.VFs.All = t.VFs.Free+other.VFs.Free, t.VFs.All+other.VFs.All
	t.Pairs += other.Pairs
}

// Count is a number of devices of one kind.
type Count struct {
	Free int `json:"free"` // a container can get these now
	All  int `json:"all"`
}

// String returns "free/all", "-" if no device is offered.
func (c Count) String() string { return formatShare(c.Free, c.All) }

// formatShare returns "part/all", "-" if there are none.
func formatShare(part, all int) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", part, all)
}

func (c *Count) addRow(r deviceRow) {
	c.All++
	if r.isFree() {
		c.Free++
	}
}

// counts are the counts of one switch.
type counts struct{ gpus, vfs Count }

func (c *counts) addRow(r deviceRow) {
	if r.kind == device.GPU {
		c.gpus.addRow(r)
	} else {
		c.vfs.addRow(r)
	}
}

// listCounts returns "1 GPU", "2 VFs" or both.
func (c *counts) listCounts() string {
	var parts []string
	if n := c.gpus.All; n > 0 {
		parts = append(parts, cli.Count(n, "GPU"))
	}
	if n := c.vfs.All; n > 0 {
		parts = append(parts, cli.Count(n, "VF"))
	}
	return strings.Join(parts, ", ")
}

func totalsOf(rows []deviceRow) (t Totals) {
	switches, all := map[string]*counts{}, counts{}
	for _, r := range rows {
		if switches[r.Switch] == nil {
			switches[r.Switch] = &counts{}
		}
		switches[r.Switch].addRow(r)
		all.addRow(r)
	}
	for name, c := range switches {
		if topology.IsSwitch(name) {
			t.Pairs += min(c.gpus.Free, c.vfs.Free)
		}
	}
	t.GPUs, t.VFs = all.gpus, all.vfs
	return t
}

// degradedPairs is a container with GPUs and VFs that are not all paired on one switch each.
type degradedPairs struct {
	Container string `json:"container"` // namespace/pod/container
	GPUs      int    `json:"gpus"`
	VFs       int    `json:"vfs"`
	Apart     int    `json:"apart"` // GPUs that share no switch with a VF of their own; of shared VFs, with any
}

func degradedOf(resources []*api.Resource) []degradedPairs {
	var list []degradedPairs
	for _, c := range admission.FindDegraded(resources) {
		list = append(list, degradedPairs{formatOwner(c.Owner), c.GPUs, c.VFs, c.Apart})
	}
	return list
}

// Pod returns the pod of the container as namespace/pod.
func (d degradedPairs) Pod() string { return podOf(d.Container) }

func (d degradedPairs) String() string {
	return fmt.Sprintf("%s: %d of %d GPUs have no VF on their switch", d.Container, d.Apart, d.GPUs)
}
