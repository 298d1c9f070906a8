// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// result is the result of one request on one set-up.
type result struct {
	setup         setup
	size          int
	tandem        trials
	uncoordinated trials
	refused       bool // by the kubelet's Topology Manager, on an empty node
}

// show starts a set-up twice, coordinated and not, and puts every request to both.
func show(ctx context.Context, p *printer, s setup) (results []result, err error) {
	tandem, err := start(ctx, s, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tandem.Stop()) }()
	uncoordinated, err := start(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, uncoordinated.Stop()) }()

	p.setup(s, tandem)
	for _, size := range sizes {
		if size > tandem.GPUs() || s.VFsPerPF > 0 && size > tandem.VFs() {
			break
		}
		r, err := request(ctx, s, size, tandem, uncoordinated)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		p.result(r)
		results = append(results, r)
	}
	return results, nil
}

func start(ctx context.Context, s setup, coordinated bool) (*rig.Rig, error) {
	s.Coordinated = coordinated
	return rig.Start(ctx, s.Setup)
}

// request admits the same pods to both rigs, one after the other on an empty node.
func request(ctx context.Context, s setup, size int, tandem, uncoordinated *rig.Rig) (result, error) {
	r := result{setup: s, size: size, tandem: newTrials(), uncoordinated: newTrials()}
	for i := range maxPods {
		err := errors.Join(ctx.Err(), r.tandem.try(ctx, tandem, size, i))
		if err == nil {
			err = r.uncoordinated.try(ctx, uncoordinated, size, i)
		}
		var rejection *node.Rejection
		if errors.As(err, &rejection) && rejection.Reason == "TopologyAffinityError" && s.String() == refusing {
			r.refused = true
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if orders := len(limits(tandem, size)); i+1 >= pods && r.tandem.orders() == orders &&
			r.uncoordinated.orders() == orders {
			return r, nil
		}
	}
	return r, fmt.Errorf("%d admissions of %d+%d, and the kubelet asked in one order only", maxPods, size, size)
}

// pods is the number of trials of a request; more follow until the kubelet has called each resource first, on
// both rigs. The rarer order comes in one admission out of five: a hundred in a row without it would be a
// fault.
const (
	pods    = 20
	maxPods = 100
)

// limits returns a pod's requests.
func limits(r *rig.Rig, size int) map[string]int {
	limits := map[string]int{r.GPU: size}
	if r.VFs() > 0 {
		limits[rig.VF] = size
	}
	return limits
}
