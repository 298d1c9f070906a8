package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubelet/rig"
)

// result is one request on one set-up.
type result struct {
	setup         setup
	size          int
	tandem        trials
	uncoordinated trials
	refused       string // why the kubelet refuses it, "" where it was admitted
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

func request(ctx context.Context, s setup, size int, tandem, uncoordinated *rig.Rig) (result, error) {
	r := result{setup: s, size: size}
	var err error
	if r.tandem, err = try(ctx, tandem, size); err == nil {
		r.uncoordinated, err = try(ctx, uncoordinated, size)
	}
	var rejection *node.Rejection
	if errors.As(err, &rejection) {
		r.refused, err = whyRefused(tandem, rejection, size)
	}
	return r, err
}

// pods is how often a request is tried, and more often until the kubelet has asked either resource first. The
// rarer order comes in one admission out of five: a hundred in a row without it would be a fault.
const (
	pods    = 20
	maxPods = 100
)

// try admits the request on the empty node, one pod after the other.
func try(ctx context.Context, r *rig.Rig, size int) (trials, error) {
	limits := map[string]int{r.GPU: size}
	if r.VFs() > 0 {
		limits[rig.VF] = size
	}
	t := trials{first: map[string][]rig.Placement{}}
	for i := range maxPods {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		pod := node.Pod(fmt.Sprintf("pod-%d-%d", size, i), nil, []v1.Container{node.Container("app", limits)})
		placed, err := r.Admit(ctx, pod)
		if err = errors.Join(err, r.Remove(pod)); err != nil {
			return t, err
		}
		asked := placed[0].Asked[0]
		t.first[asked] = append(t.first[asked], placed[0])
		if i+1 >= pods && len(t.first) == len(limits) {
			return t, nil
		}
	}
	return t, fmt.Errorf("%d admissions of %d+%d, and the kubelet asked in one order only", maxPods, size, size)
}
