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
