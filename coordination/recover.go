package coordination

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/survive"
	"github.com/tandem-k8s/tandem/topology"
)

// recover goes on where an earlier server ended: with its checkpoint, if there is one to trust, reconciled with the kubelet's own
// record. The first look at PodResources and the plugins that join do the rest.
func (c *coordinator) recover(s *store) {
	saved, restored := s.load()
	if restored {
		if err := survive.Do(c.log, func() error { return c.restore(saved) }); err != nil {
			s.setAside(err)
			restored = false
		}
	}
	now, err := c.recorded()
	switch {
	case err != nil:
		c.log.Info("go on without the kubelet's device checkpoint", "error", err)
	case restored:
		c.ledger.reconcile(now)
	default:
		c.ledger.adopt(now)
	}
}

// Listed is every device of a resource that the kubelet can know from this plugin's earlier life: those of the ledger's
// checkpoint and of the kubelet's own. A plugin that no longer finds one keeps it in its list, unhealthy: from 1.34 on the kubelet's
// process ends when a device that a container holds is no longer listed (allDevices is looked up without a check,
// pkg/kubelet/cm/devicemanager/manager.go). None of them is known to be healthy.
func (n *Node) Listed(resource string) []Device {
	known := map[string]Device{}
	if recorded, err := kubelet.ReadCheckpoint(n.config.KubeletDir); err == nil {
		for id, node := range recorded.Listed(resource) {
			d := Device{ID: id}
			if node >= 0 {
				d.NUMA = topology.Node(node)
			}
			known[id] = d
		}
	}
	if saved, err := readCheckpoint(n.config.RunDir); err == nil && saved.Boot == bootID() {
		for _, r := range saved.Resources {
			devices, err := r.devices()
			if r.Name != resource || err != nil {
				continue
			}
			for _, d := range devices {
				known[d.ID] = d
			}
		}
	}
	return slices.SortedFunc(maps.Values(known), compareDevices)
}
