// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// remarks are the parts of the status from outside the coordinator, for people.
type remarks struct {
	config  *Config
	sources *intent.Sources
}

// notes returns the publisher's notes, the claims or the reason that withhold devices, and the violations.
func (r remarks) notes(ctx context.Context, resources []*api.Resource) []string {
	var notes []string
	if r.config.Publisher != nil {
		notes = r.config.Publisher.Notes()
	}
	return slices.Concat(notes, r.claims(resources), r.violations(ctx, resources))
}

// hintNotes returns the decisions about NUMA hints of VFs.
func hintNotes(announced admission.Announced) (notes []string) {
	for _, r := range announced.Resources {
		if r.Hints != "" {
			notes = append(notes, r.Name+": "+r.Hints)
		}
	}
	return notes
}

// claims returns sentences about the holders of withheld devices, for which the devices are unhealthy, or the
// reason for withholding all devices.
func (r remarks) claims(resources []*api.Resource) []string {
	if r.config.claims == nil {
		return nil
	}
	holders := r.config.claims.newest.Get()
	if why := holders.Why(); why != "" {
		return []string{why}
	}
	held := map[string][]string{}
	for _, resource := range resources {
		for _, d := range resource.GetDevices() {
			id := d.GetDevice().GetId()
			if holder := holders.Of(id, topology.Unit{Name: d.GetDevice().GetUnit()}); holder != "" {
				held[holder] = append(held[holder], id)
			}
		}
	}
	var notes []string
	for _, holder := range slices.Sorted(maps.Keys(held)) {
		ids := slices.Compact(slices.Sorted(slices.Values(held[holder])))
		notes = append(notes, fmt.Sprintf("%s, prepared in DRA mode, withholds %s: unhealthy for the kubelet "+
			"until the claim is deleted", holder, strings.Join(ids, " ")))
	}
	return notes
}

// violations returns sentences about running containers with far pairs of pods with alignment "required": the
// containers were admitted without an answer of a request source or of the coordinator. Without a source the
// violations are unknown.
func (r remarks) violations(ctx context.Context, resources []*api.Resource) []string {
	far := admission.FindDegraded(resources)
	if len(far) == 0 {
		return nil
	}
	answer, err := r.sources.Pods(ctx)
	if err != nil {
		return nil
	}
	var notes []string
	for _, c := range far {
		owner := c.Owner
		i := slices.IndexFunc(answer.Pods, func(pod intent.Pod) bool {
			return pod.UID == owner.GetUid() || owner.GetUid() == "" &&
				pod.Pod == kubelet.Pod{Namespace: owner.GetNamespace(), Name: owner.GetPod()}
		})
		if i >= 0 && cmp.Or(answer.Pods[i].Alignment, r.config.Intent.Policy.Alignment) == intent.Required {
			notes = append(notes, fmt.Sprintf("container %s/%s/%s runs with pairs on different switches although "+
				"alignment is required: no source was available at its admission; delete the pod to repeat the admission",
				owner.GetNamespace(), owner.GetPod(), owner.GetContainer()))
		}
	}
	return notes
}

// alignment returns the node's alignment and the enforcement of annotations.
func (r remarks) alignment() *api.Alignment {
	now, _ := r.sources.Enforcement()
	return &api.Alignment{
		Policy:      string(cmp.Or(r.config.Intent.Policy.Alignment, intent.Preferred)),
		Annotations: now.Enforced(), Source: string(now.Source), Why: now.Why,
	}
}

// Unsound is a device of a container that has become unhealthy or degraded: the container keeps the device.
type Unsound struct {
	kubelet.Container        // of a claim the name is "claim NAME": a claim does not identify the container
	UID               string // of the pod
	Resource          string
	Device            string
	Health            string // device.Failed or device.Degraded
	Reason            string
}

// Holder returns the container or the claim that has the device, for people.
func (u Unsound) Holder() string {
	if strings.HasPrefix(u.Name, "claim ") { // no container has a name with a space
		return u.Name
	}
	return "container " + u.Name
}

// unsoundPause is the time between two looks for unsound devices of containers.
const unsoundPause = 10 * time.Second

// tellUnsound forwards the unsound devices of containers periodically, while this plugin serves.
func (e *election) tellUnsound(ctx context.Context) {
	LookForUnsound(ctx, func() {
		if own := e.serving.Load(); own != nil {
			if list, err := e.unsound(ctx, own.coordinator.Resources()); err == nil {
				e.config.Unsound(list)
			}
		}
	})
}

// LookForUnsound calls look every 10 seconds until ctx is done.
func LookForUnsound(ctx context.Context, look func()) {
	ticker := time.NewTicker(unsoundPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			look()
		case <-ctx.Done():
			return
		}
	}
}

// unsound returns the devices with a reason, and whose pod a source of requests knows.
func (e *election) unsound(ctx context.Context, resources []*api.Resource) ([]Unsound, error) {
	if len(unsoundOf(resources)) == 0 {
		return nil, nil
	}
	answer, err := e.sources.Pods(ctx)
	if err != nil {
		return nil, err
	}
	uids := map[kubelet.Pod]string{}
	for _, pod := range answer.Pods {
		uids[pod.Pod] = pod.UID
	}
	return UnsoundOf(resources, uids), nil
}

// UnsoundOf returns the unsound devices whose owner is a pod with a known UID.
func UnsoundOf(resources []*api.Resource, uids map[kubelet.Pod]string) (known []Unsound) {
	for _, u := range unsoundOf(resources) {
		u.UID = cmp.Or(u.UID, uids[u.Pod])
		if u.UID != "" {
			known = append(known, u)
		}
	}
	return known
}

// unsoundOf returns the unsound devices with a known owner.
func unsoundOf(resources []*api.Resource) (list []Unsound) {
	for _, r := range resources {
		for _, d := range r.GetDevices() {
			health, owner := device.Health(d.GetDevice()), d.GetOwner()
			if health == "" || owner.GetPod() == "" {
				continue
			}
			list = append(list, Unsound{
				Container: kubelet.Container{
					Pod:  kubelet.Pod{Namespace: owner.GetNamespace(), Name: owner.GetPod()},
					Name: owner.GetContainer(),
				},
				UID: owner.GetUid(), Resource: r.GetName(), Device: d.GetDevice().GetId(), Health: health,
				Reason: d.GetDevice().GetReason(),
			})
		}
	}
	return list
}
