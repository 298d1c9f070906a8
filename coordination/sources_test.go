// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// lister is a kubelet with another PodResources List.
type lister struct {
	admission.Kubelet
	list func() (kubelet.View, error)
}

func (l lister) List(context.Context) (kubelet.View, error) { return l.list() }

// checkpoints is a kubelet with another checkpoint.
type checkpoints struct {
	admission.Kubelet
	read func() (kubelet.Checkpoint, error)
}

func (c checkpoints) Checkpoint() (kubelet.Checkpoint, error) { return c.read() }

// requests are pods of a test.
type requests func() (intent.Answer, error)

func (r requests) Pods(context.Context) (intent.Answer, error) { return r() }

// refreshed is a machine that is read in another way.
type refreshed struct {
	admission.Machine
	refresh func(device.Announcement) error
}

func (r refreshed) Refresh(a device.Announcement) error { return r.refresh(a) }

// renewed is a machine with another newest tree.
type renewed struct {
	admission.Machine
	newest func() *topology.Tree
}

func (r renewed) Newest() *topology.Tree { return r.newest() }

// publishSlowly publishes the VF vf2, and returns while the server reads the PCI tree, until release.
func publishSlowly(c *admission.Coordinator, m *Member) (release func()) {
	reading, read, own := make(chan struct{}), make(chan struct{}), c.Machine
	c.Machine = refreshed{own, func(a device.Announcement) error {
		if a.Devices[0].ID == "vf2" {
			close(reading)
			<-read
		}
		return own.Refresh(a)
	}}
	m.Publish(device.Announcement{
		Devices: []device.Device{{ID: "vf2", Address: topology.Address{Bus: 4}, Healthy: true}},
	})
	<-reading
	return func() { close(read) }
}
