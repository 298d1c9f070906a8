// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

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
		if u.UID = cmp.Or(u.UID, uids[u.Pod]); u.UID != "" {
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
