// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// traffic runs "tandem verify --traffic" with Debian's perftest in two pods with network namespaces of their
// own: bytes flow through the pods' device nodes, GIDs and limits of locked memory. A software RDMA device
// stays in the node's network namespace, because rdma_rxe of Linux 6.12 removes the device with its netdev
// when the netdev leaves the namespace. The pods therefore share the devices (machine.Settings.SharedRDMA).
func (t *tester) traffic(ctx context.Context, s setup) error {
	first, err := t.holdPerftest(ctx, s)
	if err != nil {
		return err
	}
	second, err := t.holdPerftest(ctx, s)
	if err != nil {
		return err
	}
	w := &wire{t.node}
	if err := w.connect(ctx, first, second); err != nil {
		return err
	}
	for _, test := range []struct {
		name string
		do   func(context.Context) (problem, note string, err error)
	}{
		{"RDMA traffic of each pair of a pod to itself", w.toSelf(first)},
		{"RDMA traffic between two pods, pair by pair", w.between(first, second)},
		{"tandem qualify, with NCCL's topology and a pod's traffic", w.qualified(first, t.reportFile())},
		{"RDMA traffic below a threshold, and of a port that is down", w.failing(first)},
	} {
		r, start := Row{Setup: t.title(s), Scenario: test.name}, time.Now()
		if r.Problem, r.note, err = test.do(ctx); err != nil {
			return err
		}
		r.took = time.Since(start)
		t.add(r)
	}
	return t.node.Remove(ctx, first.pod, second.pod)
}

// holdPerftest creates a pod with two pairs and perftest.
func (t *tester) holdPerftest(ctx context.Context, s setup) (h holder, err error) {
	c := pair(2)
	c.perftest = true
	if h.pod, h.saw, _, err = t.admit(ctx, s, c); err != nil {
		return h, err
	}
	if problem := judge(s, c, h.saw); problem != "" {
		return h, fmt.Errorf("create a pod for traffic: %s", problem)
	}
	return h, nil
}

// toSelf measures each pair of a pod to itself, within the NIC: the packets do not reach the netdev.
func (w *wire) toSelf(h holder) func(context.Context) (problem, note string, err error) {
	return func(ctx context.Context) (problem, note string, err error) {
		var m measurement
		sent, err := w.sent(ctx, h, sentPackets, func() error { return m.measure(ctx, w.Node, h, least...) })
		for vf := range sent {
			sent[vf] *= packet
		}
		return m.judge(h, sent), m.String(), err
	}
}

// between measures the i-th pair of the one pod to the i-th pair of the other one.
func (w *wire) between(client, server holder) func(context.Context) (problem, note string, err error) {
	return func(ctx context.Context) (problem, note string, err error) {
		host, err := w.PodIP(ctx, server.pod)
		if err != nil {
			return "", "", err
		}
		var ofClient, ofServer measurement
		sent, err := w.sent(ctx, client, sentBytes, func() error {
			both, together := errgroup.WithContext(ctx)
			both.Go(func() error {
				flags := slices.Concat(least, []string{"--traffic-wait=10m", "--server"})
				return ofServer.measure(together, w.Node, server, flags...)
			})
			both.Go(func() error {
				flags := slices.Concat(least, []string{"--traffic-wait=10m", "--client=" + host})
				return ofClient.measure(together, w.Node, client, flags...)
			})
			return both.Wait()
		})
		return join(ofClient.judge(client, sent), ofServer.judge(server, nil)), ofClient.String(), err
	}
}

// failing measures the pairs of a pod with a threshold that none reaches, while the port of the last VF is
// down.
func (w *wire) failing(h holder) func(context.Context) (problem, note string, err error) {
	return func(ctx context.Context) (problem, note string, err error) {
		vfs := h.vfs()
		last := vfs[len(vfs)-1]
		if err := w.turn(ctx, last, "down"); err != nil {
			return "", "", err
		}
		var m measurement
		err = m.measure(ctx, w.Node, h, "--traffic-seconds=1", "--traffic-min-rate=100")
		return m.judgeFailures(h), m.String(), errors.Join(err, w.turn(ctx, last, "up"))
	}
}
