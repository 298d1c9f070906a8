// SPDX-License-Identifier: Apache-2.0

package object

import (
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Free returns the healthy devices that no pod holds, by resource and number, including those of ended pods,
// which the kubelet reuses.
func Free(s v1alpha1.Spec, gone facts.Gone) map[string]map[int]bool {
	free := map[string]map[int]bool{}
	for _, r := range s.Resources {
		free[r.Name] = map[int]bool{}
		for number := range r.Devices {
			free[r.Name][number] = true
		}
		drop(free[r.Name], r.Unhealthy)
	}
	for _, pod := range s.Held {
		if gone[pod.UID] {
			continue
		}
		for _, container := range pod.Containers {
			for name, devices := range container.Devices {
				drop(free[name], devices)
			}
		}
	}
	return free
}

func drop(from map[int]bool, devices v1alpha1.Set) {
	for _, number := range devices.Numbers() {
		delete(from, number)
	}
}
