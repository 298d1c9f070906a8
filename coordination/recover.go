package coordination

import (
	"errors"
	"io/fs"
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
		c.current().ledger.reconcile(now)
	default:
		c.current().ledger.adopt(now)
	}
}

// Needed are the devices of a resource that the kubelet may look up, by its checkpoint: those that it counts as healthy, and those that
// containers hold. From 1.34 on its process ends when one of them is no longer listed (allDevices is looked up without a check,
// pkg/kubelet/cm/devicemanager/manager.go).
func (n *Node) Needed(resource string) (map[string]bool, error) {
	recorded, err := kubelet.ReadCheckpoint(n.config.KubeletDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	needed := map[string]bool{}
	for id := range recorded.Listed(resource) {
		needed[id] = true
	}
	return needed, nil
}

// Listed is every device of a resource that the kubelet needs from this plugin's earlier life (see Needed). A plugin that no longer finds one
// keeps it in its list, unhealthy. None of them is known to be healthy. Where the kubelet's checkpoint cannot be read they are all that
// the ledger's checkpoint has.
func (n *Node) Listed(resource string) []Device {
	known := map[string]Device{}
	recorded, err := kubelet.ReadCheckpoint(n.config.KubeletDir)
	for id, node := range recorded.Listed(resource) {
		d := Device{ID: id}
		if node >= 0 {
			d.NUMA = topology.Node(node)
		}
		known[id] = d
	}
	unreadable := err != nil && !errors.Is(err, fs.ErrNotExist)
	for _, d := range n.saved(resource) {
		if _, listed := known[d.ID]; listed || unreadable {
			known[d.ID] = d
		}
	}
	return slices.SortedFunc(maps.Values(known), compareDevices)
}

// saved lists the devices of a resource in the ledger's checkpoint, none where it cannot be used.
func (n *Node) saved(resource string) []Device {
	saved, err := readCheckpoint(n.config.RunDir)
	if err != nil || saved.Boot != bootID() {
		return nil
	}
	for _, r := range saved.Resources {
		if devices, err := r.devices(); r.Name == resource && err == nil {
			return devices
		}
	}
	return nil
}
