// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// conflict is an error where a container of some pods gets several environments that contradict each other:
// of equal variables in several CDI devices, and of mounts on one path, a container keeps one. Claims that
// were made for the pod have one environment together; those that other pods can use too have not, for it
// would show those pods what is this one's.
func conflict(
	pods []*corev1.Pod, claims []*resourceapi.ResourceClaim, prepared []Claim,
	environments map[string]*environment,
) error {
	all := requests(claims)
	for _, pod := range pods {
		for _, c := range containers(pod) {
			seen, of := map[string]string{}, map[string]string{} // by what is set: to what, and by which claim
			for _, a := range slices.Concat(used(pod, &c, claims, all)...) {
				claim := find(prepared, a.claim)
				settings := settingsOf(environments[claim.group(a.request)])
				for _, key := range slices.Sorted(maps.Keys(settings)) {
					value := settings[key]
					if before, known := seen[key]; known && before != value {
						return fmt.Errorf("prepare %s: container %s of pod %s/%s uses %s too, and both set %s: ask for "+
							"all devices of a container in one claim, or in claims that are made from templates",
							claim, c.Name, pod.Namespace, pod.Name, of[key], key)
					}
					seen[key], of[key] = value, claim.String()
				}
			}
		}
	}
	return nil
}

// group names the group of a request; "" where the claim does not have it.
func (c Claim) group(request string) string {
	for _, d := range c.Devices {
		if d.request() == request {
			return d.Group
		}
	}
	return ""
}

// settingsOf are the variables and mounts of an environment; none where it is not known.
func settingsOf(e *environment) map[string]string {
	set := map[string]string{}
	if e == nil {
		return set
	}
	maps.Copy(set, e.edits.Env)
	for _, mount := range e.edits.Mounts {
		set["a mount on "+mount.Path] = mount.Host
	}
	return set
}
