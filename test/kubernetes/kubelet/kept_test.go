// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"os"
	"path/filepath"
)

// checkReadable makes sure that whoever serves could read the file that was left behind, unless that was
// corrupted.
func (c *chaos) checkReadable() {
	c.t.Helper()
	bad := filepath.Join(c.RunDir(), "coordinator.json.bad")
	content, err := os.ReadFile(bad)
	switch {
	case err == nil && c.corrupted:
		c.counts["corrupted file set aside"]++
		c.must(os.Remove(bad))
	case err == nil:
		c.t.Errorf("a file that nobody corrupted was set aside:\n%s", content)
	case !errors.Is(err, os.ErrNotExist):
		c.must(err)
	}
}

// checkKept makes sure that no device that a pod has is free to the coordinator. It learns from PodResources
// what was given out while it could not be told, when it is asked the next time.
func (c *chaos) checkKept() {
	c.t.Helper()
	if c.blind {
		return
	}
	status, err := c.Status(deadline(c.t))
	c.must(err)
	for _, resource := range status.GetResources() {
		kept := map[string]bool{}
		for _, device := range resource.GetDevices() {
			kept[device.GetDevice().GetId()] = device.GetAllocated()
		}
		for id, pod := range c.Owners(resource.GetName()) {
			if !kept[id] {
				c.t.Errorf("%s %s is free to the coordinator, and pod %s has it", resource.GetName(), id, pod)
			}
		}
	}
}
