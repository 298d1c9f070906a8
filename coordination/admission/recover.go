package admission

import (
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// recover goes on where an earlier server ended: with its checkpoint, if there is one to trust, reconciled with the kubelet's own
// record. The first look at PodResources and the plugins that join do the rest.
func (c *Coordinator) recover() {
	s := c.store
	saved, restored := s.load()
	if restored {
		if err := survive.Do(c.Log, func() error { return c.restore(saved) }); err != nil {
			s.setAside(err)
			restored = false
		}
	}
	now, err := c.Recorded()
	switch {
	case err != nil:
		c.Log.Info("go on without the kubelet's device checkpoint", "error", err)
	case restored:
		c.current().ledger.reconcile(now)
	default:
		c.current().ledger.adopt(now)
	}
}

// Saved lists the devices of a resource in the ledger's checkpoint, none where it cannot be used.
func Saved(runDir, resource string) []device.Device {
	saved, err := readCheckpoint(runDir)
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
