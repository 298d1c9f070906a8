package deviceplugin

import "maps"

// Keep lays the devices that are found over those that are known, both by ID. One that is known and no longer
// found stays, as gone makes of it: from 1.34 on the kubelet's process dies when a device that a container
// holds, or is just being given, vanishes (pkg/kubelet/cm/devicemanager/manager.go, allDevices is looked up
// without a check). Neither map is changed.
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
