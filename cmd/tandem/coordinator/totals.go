package coordinator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Totals counts devices as the kubelet does: every partition, every VF and every replica is one.
type Totals struct {
	GPUs  Count `json:"gpus"`
	VFs   Count `json:"vfs"`
	Pairs int   `json:"pairs"` // that the free devices make on one switch each
}

// Add counts those of another node too.
func (t *Totals) Add(other Totals) {
	t.GPUs.Free, t.GPUs.All = t.GPUs.Free+other.GPUs.Free, t.GPUs.All+other.GPUs.All
	t.VFs.Free, t.VFs.All = t.VFs.Free+other.VFs.Free, t.VFs.All+other.VFs.All
	t.Pairs += other.Pairs
}

// Count is of devices of one kind.
type Count struct {
	Free int `json:"free"` // those that a container can get now
	All  int `json:"all"`
}

func (c *Count) add(r row) {
	c.All++
	if r.free() {
		c.Free++
	}
}

func (c Count) String() string { return fmt.Sprintf("%d/%d", c.Free, c.All) }

// counts are those of one switch.
type counts struct{ gpus, vfs Count }

func (c *counts) add(r row) {
	if r.kind == device.GPU {
		c.gpus.add(r)
	} else {
		c.vfs.add(r)
	}
}

// isSwitch reports whether devices of the same name in the field switch share one. What hangs on a host
// bridge alone does not: that is PHB.
func isSwitch(name string) bool {
	_, err := topology.ParseAddress(name)
	return err == nil
}

func (s Status) totals() (t Totals) {
	switches, all := map[string]*counts{}, counts{}
	for _, r := range s.rows() {
		if switches[r.Switch] == nil {
			switches[r.Switch] = &counts{}
		}
		switches[r.Switch].add(r)
		all.add(r)
	}
	for name, c := range switches {
		if isSwitch(name) {
			t.Pairs += min(c.gpus.Free, c.vfs.Free)
		}
	}
	t.GPUs, t.VFs = all.gpus, all.vfs
	return t
}

// Degraded is a container with GPUs and VFs that are not all paired on one switch each.
type Degraded struct {
	Container string `json:"container"` // namespace/pod/container
	GPUs      int    `json:"gpus"`
	VFs       int    `json:"vfs"`
	Apart     int    `json:"apart"` // GPUs that share no switch with a VF of their own; of shared VFs, with any
}

// degraded are the containers whose owner is known, sorted.
func (s Status) degraded() []Degraded {
	owned := map[string]map[string]*counts{}
	for _, r := range s.rows() {
		if r.Owner == "" {
			continue
		}
		if owned[r.Owner] == nil {
			owned[r.Owner] = map[string]*counts{}
		}
		if owned[r.Owner][r.Switch] == nil {
			owned[r.Owner][r.Switch] = &counts{}
		}
		owned[r.Owner][r.Switch].add(r)
	}
	var list []Degraded
	for _, owner := range slices.Sorted(maps.Keys(owned)) {
		if d := apart(owned[owner]); d.VFs > 0 && d.Apart > 0 {
			d.Container = owner
			list = append(list, d)
		}
	}
	return list
}

// apart counts the GPUs of a container that have no VF on their switch: each its own VF where there are as
// many, else any, for then a VF serves several GPUs.
func apart(switches map[string]*counts) (d Degraded) {
	for _, c := range switches {
		d.GPUs += c.gpus.All
		d.VFs += c.vfs.All
	}
	for name, c := range switches {
		switch near := isSwitch(name); {
		case !near:
			d.Apart += c.gpus.All
		case d.VFs >= d.GPUs:
			d.Apart += max(0, c.gpus.All-c.vfs.All)
		case c.vfs.All == 0:
			d.Apart += c.gpus.All
		}
	}
	return d
}

func (d Degraded) String() string {
	return fmt.Sprintf("%s: %d of %d GPUs have no VF on their switch", d.Container, d.Apart, d.GPUs)
}
