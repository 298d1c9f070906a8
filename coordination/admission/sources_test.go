// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// sources are a Machine, a Kubelet and Pods, by functions that a test exchanges. What is nil is not read.
type sources struct {
	refresh         func(device.Announcement) error
	newest          func() *topology.Tree
	life            func() string
	recorded        func() (kubelet.Checkpoint, error)
	granted         func() ([]kubelet.Granted, error)
	look            func(context.Context) (kubelet.View, error)
	get             func(context.Context, kubelet.Pod) (kubelet.View, error)
	pods            func(context.Context) (intent.Answer, error)
	allocatableCPUs func(context.Context) (topology.CPUSet, error)
	nodeCPUs        func() (map[int]topology.CPUSet, error)
	manager         func() (model.TopologyManager, error)
}

// with sets the sources of a configuration.
func (s *sources) with(c Config) *Config {
	c.Machine, c.Kubelet, c.Pods, c.MayList = s, s, s, s.look != nil
	return &c
}

// sourcesOf returns the sources of a coordinator, to exchange them.
func sourcesOf(c *Coordinator) *sources { return c.Kubelet.(*sources) }

func (s *sources) Refresh(a device.Announcement) error {
	if s.refresh == nil {
		return nil
	}
	return s.refresh(a)
}

func (s *sources) Newest() *topology.Tree {
	if s.newest == nil {
		return nil
	}
	return s.newest()
}

func (s *sources) Life() string {
	if s.life == nil {
		return ""
	}
	return s.life()
}

func (s *sources) Checkpoint() (kubelet.Checkpoint, error) { return s.recorded() }

func (s *sources) Granted() ([]kubelet.Granted, error) { return s.granted() }

func (s *sources) List(ctx context.Context) (kubelet.View, error) { return s.look(ctx) }

func (s *sources) Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
	return s.get(ctx, pod)
}

func (s *sources) Pods(ctx context.Context) (answer intent.Answer, err error) {
	if s.pods == nil {
		return answer, kubelet.ErrNotRead
	}
	return s.pods(ctx)
}

func (s *sources) CPUs(
	ctx context.Context,
) (exclusive topology.CPUSet, all map[int]topology.CPUSet, err error) {
	if s.allocatableCPUs == nil {
		return nil, nil, nil
	}
	if exclusive, err = s.allocatableCPUs(ctx); err == nil {
		all, err = s.nodeCPUs()
	}
	return exclusive, all, err
}

func (s *sources) TopologyManager() (m model.TopologyManager, err error) {
	if s.manager == nil {
		return m, kubelet.ErrNotRead
	}
	return s.manager()
}
