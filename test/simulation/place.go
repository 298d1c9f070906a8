// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Variant is a circumstance that the pairs of a pod must not depend on.
type Variant struct {
	Options
	First    string // the resource that the kubelet allocates first
	Restarts bool   // plugins and the kubelet restart between pods
}

// Placement is the result of a container's admission.
type Placement struct {
	Container string
	Devices   kubelet.Devices // none for a container of a refused pod
	Levels    string          // distances of the pairs
	Free      kubelet.Devices // the kubelet's choice
}

// Place admits a seed's sequence of pods on a node without faults, and returns the result for each container.
// The sequence depends on the seed alone. The result of a container without GPUs or without VFs has no
// levels.
func Place(
	dir string, seed uint64, variant Variant, pods int, log *slog.Logger,
) ([]Placement, *seeds.Report, error) {
	node, err := newNode(dir, seed, variant.Options, log)
	if err != nil {
		return nil, nil, err
	}
	s := newSimulation(node, seed)
	node.kubelet.First = variant.First
	script := rand.New(rand.NewPCG(seed, 33))
	var placed []Placement
	err = s.whole(func() error {
		s.judging = true
		for i := range pods {
			if i%4 == 3 && variant.Restarts {
				if err := s.restart(); err != nil {
					return err
				}
			}
			results, err := s.place(scripted(script, i), script)
			if err != nil {
				return err
			}
			placed = append(placed, results...)
			if err := s.sync(); err != nil {
				return err
			}
		}
		return nil
	})
	return placed, s.report(), err
}

// shapes are the numbers of GPUs and VFs of containers.
var shapes = [][2]int{{1, 1}, {2, 2}, {4, 4}, {1, 0}, {0, 1}, {2, 1}, {1, 2}}

// scripted returns the pod of a number.
func scripted(script *rand.Rand, number int) *model.Pod {
	p := &model.Pod{Pod: kubelet.Pod{Namespace: "team", Name: fmt.Sprint("pod-", number)}}
	if script.IntN(5) == 0 {
		p.Alignment = intent.Required
	}
	for i := range 1 + script.IntN(2) {
		shape := shapes[script.IntN(len(shapes))]
		c := &model.Container{Name: fmt.Sprint("c", i), Role: model.App, Requests: map[string]int{}}
		for j, resource := range []string{model.GPUs, model.VFs} {
			if shape[j] > 0 {
				c.Requests[resource] = shape[j]
			}
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// place ends some pods and admits a pod.
func (s *Simulation) place(p *model.Pod, script *rand.Rand) (placed []Placement, err error) {
	ends := script.IntN(3)
	first := script.IntN(100)
	for range ends {
		if living := s.kubelet.Pods(); len(living) > 2 {
			s.end(living[first%len(living)])
		}
	}
	seeds.Sleep(time.Duration(100+script.IntN(900)) * time.Millisecond)
	s.admitted++
	if err := s.judge(p); err != nil {
		return nil, err
	}
	s.kubelet.Start()
	for _, c := range p.Containers {
		result := Placement{Container: p.Name + "/" + c.Name, Free: c.Choice}
		if p.Living() {
			result.Devices, result.Levels = sorted(c.Devices), s.levelsOf(c)
		}
		placed = append(placed, result)
	}
	return placed, nil
}

// sorted returns devices in order.
func sorted(devices kubelet.Devices) kubelet.Devices {
	all := kubelet.Devices{}
	for resource, ids := range devices {
		all[resource] = slices.Sorted(slices.Values(ids))
	}
	return all
}

// restart restarts a plugin or the kubelet, and waits until all parts work again.
func (s *Simulation) restart() error {
	names := s.names()
	name := names[s.faults.IntN(len(names))]
	p := s.process(name)
	switch s.faults.IntN(3) {
	case 0:
		s.killed(p, "")
	case 1:
		s.trace("%s ends", name)
		if err := s.finish(p); err != nil {
			return err
		}
	default:
		s.kubelet.Restart()
		s.reconnect()
		for !s.kubelet.Ready() {
			s.kubelet.Return()
		}
		seeds.Sleep(recovery)
		return s.sync()
	}
	if err := s.bury(); err != nil {
		return err
	}
	seeds.Sleep(time.Duration(s.faults.IntN(3_000_000)) * time.Microsecond)
	if err := s.begin(name); err != nil {
		return err
	}
	seeds.Sleep(recovery)
	return s.sync()
}
