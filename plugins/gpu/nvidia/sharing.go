// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
	"github.com/tandem-k8s/tandem/topology"
)

// share returns replicas of every device of a shared resource: <ID>::0, <ID>::1 and so on.
func share(s settings.Sharing, resources map[string][]gpu.Device) map[string][]gpu.Device {
	shared := make(map[string][]gpu.Device, len(resources))
	for resource, devices := range resources {
		replicas := s.Replicas[resource]
		if replicas == 0 {
			shared[resource] = append(shared[resource], devices...)
			continue
		}
		if s.Rename {
			resource += settings.SharedSuffix
		}
		for _, d := range devices {
			id := d.ID
			for n := range replicas {
				d.ID = topology.ReplicaID(id, n)
				shared[resource] = append(shared[resource], d)
			}
		}
	}
	return shared
}

// original returns the device ID of a replica, or the ID itself.
func original(id string) string {
	id, _ = topology.CutReplica(id)
	return id
}

func isReplica(id string) bool {
	_, replica := topology.CutReplica(id)
	return replica
}
