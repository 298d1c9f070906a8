// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
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

// measurement has the exit code of "tandem verify --traffic" and a part of the JSON document.
type measurement struct {
	code     int
	Failures []string
	Traffic  struct {
		Pairs []struct {
			VF, Verdict string
			Gbps        float64
			Reasons     []string
		}
		Runs []struct {
			From, To int // pairs; -1 for one of the other pod
			Bytes    uint64
		}
	}
}

// least are the flags of a short measurement without thresholds: the bandwidths of an emulated machine differ
// by more than those of NICs.
var least = []string{"--traffic-seconds=1", "--traffic-min=0"}

// measure runs the command in a pod.
func (m *measurement) measure(ctx context.Context, n *cluster.Node, h holder, flags ...string) error {
	count := len(h.vfs())
	command := []string{"tandem", "verify", "--traffic", "-o", "json",
		fmt.Sprintf("--gpus=%d", count), fmt.Sprintf("--vfs=%d", count)}
	var err error
	m.code, err = n.ExecJSON(ctx, h.pod, m, append(command, flags...)...)
	return err
}

// judge returns the fault of a measurement that has to succeed, "" for none: the pairs' VFs are those of the
// container's variable, in the variable's order, and each VF has sent the bytes that the pair has written.
// The bytes sent are by VF; nil for a pod that only receives.
func (m *measurement) judge(h holder, sent map[string]uint64) string {
	if m.code != 0 || len(m.Failures) > 0 {
		return fmt.Sprintf("exit code %d: %s", m.code, strings.Join(m.Failures, "; "))
	}
	if vfs := m.vfs(); !slices.Equal(vfs, h.vfs()) {
		return fmt.Sprintf("the traffic is of %v, the variable has %v", vfs, h.vfs())
	}
	for i, p := range m.Traffic.Pairs {
		if p.Gbps <= 0 || p.Verdict != "ok" {
			return fmt.Sprintf("pair %d is %s with %g Gb/s", i, p.Verdict, p.Gbps)
		}
	}
	ran := map[int]bool{}
	for _, run := range m.Traffic.Runs {
		switch {
		case run.From >= len(m.Traffic.Pairs):
			return fmt.Sprintf("a run from pair %d of %d", run.From, len(m.Traffic.Pairs))
		case run.From < 0:
			ran[run.To] = true
			continue
		}
		ran[run.From] = true
		if vf := m.Traffic.Pairs[run.From].VF; run.Bytes == 0 || sent[vf] < run.Bytes {
			return fmt.Sprintf("pair %d wrote %d bytes, but %s sent %d", run.From, run.Bytes, vf, sent[vf])
		}
	}
	if pairs := len(m.Traffic.Pairs); len(ran) != pairs {
		return fmt.Sprintf("%d of %d pairs have a run", len(ran), pairs)
	}
	return ""
}

// judgeFailures returns the fault of a measurement with a threshold that no pair reaches and a last port that
// is down.
func (m *measurement) judgeFailures(h holder) string {
	pairs := m.Traffic.Pairs
	if m.code != 1 || len(m.Failures) != len(pairs) || !slices.Equal(m.vfs(), h.vfs()) {
		return fmt.Sprintf("exit code %d, VFs %v: %s", m.code, m.vfs(), strings.Join(m.Failures, "; "))
	}
	for i, p := range pairs {
		want, reason := "slow", ""
		if i == len(pairs)-1 {
			want, reason = "failed", "port 1: DOWN"
		}
		if p.Verdict != want || reason != "" && !slices.Contains(p.Reasons, reason) {
			return fmt.Sprintf("pair %d is %s (%s), want %s (%s)", i, p.Verdict, strings.Join(p.Reasons, ", "), want,
				reason)
		}
	}
	return ""
}

func (m *measurement) vfs() (addresses []string) {
	for _, p := range m.Traffic.Pairs {
		addresses = append(addresses, p.VF)
	}
	return addresses
}

// String returns the result of each pair.
func (m *measurement) String() string {
	var list []string
	for i, p := range m.Traffic.Pairs {
		text := fmt.Sprintf("pair %d: %s %.3f Gb/s", i, p.Verdict, p.Gbps)
		list = append(list, strings.Join(append([]string{text}, p.Reasons...), ", "))
	}
	return strings.Join(list, "; ")
}

// wire is the network of the VFs: all NICs are on one hub, and the VFs' netdevs are the node's.
type wire struct{ *cluster.Node }

// connecting gives an address to each VF. The kernel would deliver packets between two of its own addresses
// itself, and the queue pairs would not connect ("Failed to modify QP to RTR"). With a routing table for each
// VF before the table of local addresses, packets leave through the VF and enter through the other one.
const connecting = `set -e
number=10
for vf in %s; do
	function=/sys/bus/pci/devices/$vf
	netdev=$(ls $function/net)
	/bin/ip link set $(ls $function/physfn/net) up
	/bin/ip link set $netdev up
	/bin/ip address add 192.168.77.$number/24 dev $netdev
	for setting in accept_local=1 arp_ignore=1 arp_announce=2; do
		echo ${setting#*=} >/proc/sys/net/ipv4/conf/$netdev/${setting%%=*}
	done
	/bin/ip route add 192.168.77.0/24 dev $netdev table $((100 + number))
	/bin/ip rule add pref 1 oif $netdev lookup $((100 + number))
	number=$((number + 1))
done
/bin/ip rule add pref 2 lookup local
/bin/ip rule del pref 0
`

// awaiting waits until the ports of VFs are active: the link of a VF follows its NIC's.
const awaiting = `for vf in %s; do
	netdev=$(ls /sys/bus/pci/devices/$vf/net)
	device=$(grep -lx $netdev /sys/class/infiniband/*/parent)
	until grep -q ACTIVE ${device%%/parent}/ports/1/state; do sleep 0.5; done
done
`

// connect connects the VFs of pods, and waits for their ports.
func (w *wire) connect(ctx context.Context, pods ...holder) error {
	var vfs []string
	for _, h := range pods {
		vfs = append(vfs, h.vfs()...)
	}
	list := strings.Join(vfs, " ")
	_, err := w.Run(ctx, fmt.Sprintf(connecting, list)+fmt.Sprintf(awaiting, list))
	return err
}

// turn sets the port of a VF up or down.
func (w *wire) turn(ctx context.Context, vf, state string) error {
	_, err := w.Run(ctx, fmt.Sprintf("/bin/ip link set $(ls /sys/bus/pci/devices/%s/net) %s", vf, state))
	return err
}

// Counters of a VF's netdev and of the RDMA device over the netdev.
const (
	sentBytes   = "/sys/class/net/$netdev/statistics/tx_bytes"
	sentPackets = "$(dirname $(grep -lx $netdev /sys/class/infiniband/*/parent))/ports/1/hw_counters/sent_pkts"
)

// packet is the most bytes of data in an RDMA packet on Ethernet with an MTU of 1500.
const packet = 1024

// read returns a counter of a pod's VFs, by VF.
func (w *wire) read(ctx context.Context, h holder, counter string) (map[string]uint64, error) {
	output, err := w.Run(ctx, fmt.Sprintf(`for vf in %s; do
		netdev=$(ls /sys/bus/pci/devices/$vf/net)
		echo $vf $(cat %s)
	done`, strings.Join(h.vfs(), " "), counter))
	if err != nil {
		return nil, err
	}
	count := map[string]uint64{}
	for line := range strings.Lines(output) {
		vf, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if count[vf], err = strconv.ParseUint(value, 10, 64); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", counter, vf, err)
		}
	}
	return count, nil
}

// sent returns the increase of a counter of a pod's VFs during do, by VF.
func (w *wire) sent(
	ctx context.Context, h holder, counter string, do func() error,
) (map[string]uint64, error) {
	before, err := w.read(ctx, h, counter)
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, err := w.read(ctx, h, counter)
	for vf := range after {
		after[vf] -= before[vf]
	}
	return after, err
}

// vfs returns the addresses of a pod's VFs in the order of its variable.
func (h holder) vfs() (addresses []string) {
	for _, v := range h.saw.Containers {
		for _, path := range v.VFs {
			addresses = append(addresses, filepath.Base(path))
		}
	}
	return addresses
}
