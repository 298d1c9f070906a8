package nvidia

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// share offers every device of a shared resource several times: as <ID>::0, <ID>::1 and so on.
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
				d.ID = fmt.Sprintf("%s%s%d", id, replicaMark, n)
				shared[resource] = append(shared[resource], d)
			}
		}
	}
	return shared
}

// replicaMark is between the ID of a device and the number of the replica.
const replicaMark = "::"

// original is the ID of the device that an ID is a replica of, or the ID itself.
func original(id string) string {
	id, _, _ = strings.Cut(id, replicaMark)
	return id
}

func isReplica(id string) bool { return strings.Contains(id, replicaMark) }
