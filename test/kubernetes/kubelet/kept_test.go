// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/test/history"
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

// checkKept records the devices that are free to the coordinator: none may have an owner. The coordinator
// learns from PodResources, at the next question, of devices that were allocated while nobody could tell.
func (c *chaos) checkKept() {
	c.t.Helper()
	if c.blind {
		return
	}
	view := c.history.Call(history.Event{Kind: history.View, Exempt: []history.Promise{history.Stuck}})
	status, err := c.Status(deadline(c.t))
	c.must(err)
	free := map[string][]string{}
	for _, resource := range status.GetResources() {
		for _, device := range resource.GetDevices() {
			if !device.GetAllocated() {
				free[resource.GetName()] = append(free[resource.GetName()], device.GetDevice().GetId())
			}
		}
	}
	c.history.Return(view, func(e *history.Event) { e.Free = free })
}
