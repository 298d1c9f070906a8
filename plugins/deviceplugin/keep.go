// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import "maps"

// Keep merges the devices that are found into the known devices, both by ID. A known device that is no longer
// found stays, as gone converts it: from 1.34 on the kubelet process crashes when a device vanishes that a
// container holds or is just getting (allDevices is accessed without a check in
// pkg/kubelet/cm/devicemanager/manager.go). Keep changes neither map.
func Keep[D any](known, found map[string]D, gone func(D) D) map[string]D {
	all := make(map[string]D, max(len(known), len(found)))
	for id, d := range known {
		if _, there := found[id]; !there {
			all[id] = gone(d)
		}
	}
	maps.Copy(all, found)
	return all
}
