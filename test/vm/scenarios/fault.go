// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// fault is an event on the node while a pod runs.
type fault struct {
	name string
	do   func(context.Context, *cluster.Node) error
	anew []string // daemons that must register with the kubelet again
	next int      // pairs of the next pod
}

var faults = []fault{
	{"kill -9 of tandem-gpu", inGuest("kill -9 $(pidof tandem-gpu)"), []string{"tandem-gpu"}, 2},
	{"kill -9 of tandem-rdma", inGuest("kill -9 $(pidof tandem-rdma)"), []string{"tandem-rdma"}, 2},
	{"kubelet restart", inGuest("systemctl restart kubelet"), cluster.Daemons, 2},
	{"rolling update", rollOut(cluster.Daemons...), nil, 2},
	{"VFs made again", remakeVFs(0), nil, 4}, // more than are left of the first socket
	{"clock ten minutes ahead", inGuest(setClock("+ 600")), nil, 2},
	{"clock ten minutes back", inGuest(setClock("- 600")), nil, 2},
}

// driverFaults are the faults of a node in DRA mode.
var driverFaults = []fault{
	{"kill -9 of tandem-dra", inGuest("kill -9 $(pidof tandem-dra)"), []string{cluster.Driver}, 2},
	{"kubelet restart", inGuest("systemctl restart kubelet"), []string{cluster.Driver}, 2},
	{"rolling update", rollOut(cluster.Driver), nil, 2},
}

// lostVF lasts until the node starts again.
var lostVF = fault{"one VF less", remakeVFs(1), nil, 4}

func setClock(by string) string { return "date -s @$(($(date +%s) " + by + "))" }

func inGuest(script string) func(context.Context, *cluster.Node) error {
	return func(ctx context.Context, n *cluster.Node) error {
		_, err := n.Run(ctx, script)
		return err
	}
}

func rollOut(daemons ...string) func(context.Context, *cluster.Node) error {
	return func(ctx context.Context, n *cluster.Node) error { return n.RollOut(ctx, daemons...) }
}

// lastNIC is the NIC whose VFs are allocated last.
const lastNIC = "$(ls -d /sys/bus/pci/drivers/igb/0* | tail -n 1)"

// settle drops removed files from the overlay's caches, so that containers no longer see them. Then it sends
// a uevent: the kernel would send one for a late RDMA device if the device belonged to the NIC.
const settle = " &&\necho 2 >/proc/sys/vm/drop_caches && echo change >" + lastNIC + "/uevent"

// remakeVFs removes all VFs of a NIC and recreates them, possibly fewer, as for a change of their number.
func remakeVFs(fewer int) func(context.Context, *cluster.Node) error {
	return func(ctx context.Context, n *cluster.Node) error {
		if _, err := n.Run(ctx, "echo 0 >"+lastNIC+"/sriov_numvfs"+settle); err != nil {
			return err
		}
		if err := n.Offers(ctx, cluster.VFResource, n.VFs()-n.VFsPerPF); err != nil {
			return err
		}
		again := fmt.Sprintf("echo %d >%s/sriov_numvfs && guest rdma", n.VFsPerPF-fewer, lastNIC)
		if _, err := n.Run(ctx, again+settle); err != nil {
			return err
		}
		return n.Offers(ctx, cluster.VFResource, n.VFs()-fewer)
	}
}

// suffer causes faults one after the other while a pod with two pairs runs. The pod must survive with its
// devices, and a new pod after each fault must get pairs of the remaining devices.
func (t *tester) suffer(ctx context.Context, s setup, list ...fault) error {
	holder := t.podName()
	if _, err := t.node.Create(ctx, s.pair(2).pod(holder)); err != nil {
		return err
	}
	// waits until the pod after the fault before has gone, while the next fault happens
	gone := func() error { return nil }
	for _, f := range list {
		if err := t.Stage(ctx, f.name, 10*time.Minute, func(stage context.Context) error {
			next, err := t.sufferOne(stage, s, f, holder, gone)
			gone = t.removing(ctx, next)
			return err
		}); err != nil {
			return err
		}
	}
	return errors.Join(gone(), t.node.Remove(ctx, holder))
}

// sufferOne returns the pod created after the fault.
func (t *tester) sufferOne(
	ctx context.Context, s setup, f fault, holder string, gone func() error,
) (next string, err error) {
	before, err := t.node.State(ctx, holder)
	if err != nil {
		return "", err
	}
	registrations, err := t.node.Registrations(ctx)
	if err != nil {
		return "", err
	}
	t.node.Storm(f.name)
	if err := f.do(ctx, t.node); err != nil {
		return "", err
	}
	if err := errors.Join(t.node.RegisteredAfter(ctx, registrations, f.anew...), gone()); err != nil {
		return "", err
	}
	t.node.Restarted(f.anew...)
	then := s.pair(f.next)
	next, o, late, err := t.admit(ctx, s, then)
	if err != nil {
		return "", err
	}
	problem := judge(s, then, o)
	r := Row{Setup: t.title(s), Scenario: f.name + ", then " + then.name, Problem: problem, outcome: o}
	after, err := t.node.State(ctx, holder)
	switch {
	case err != nil:
		return "", err
	case after != before:
		r.Problem = fmt.Sprintf("the running pod was %s and is %s", before, after)
	default:
		r.note = join("the running pod was "+after, lateNote(late))
	}
	t.add(r)
	return next, t.agreed(ctx, s, "after "+f.name)
}

// restart reboots the node under a pod, with a new number of VFs per PF, and checks the next pod. The running
// pod depends on the kubelet: at its start, the kubelet admits its pods before any plugin has registered, and
// refuses those with devices of any plugin.
func (t *tester) restart(ctx context.Context, s setup, vfsPerPF int) error {
	holder := t.podName()
	if _, err := t.node.Create(ctx, pair(2).pod(holder)); err != nil {
		return err
	}
	registrations, err := t.node.Registrations(ctx)
	if err != nil {
		return err
	}
	if _, err := t.node.Run(ctx, fmt.Sprintf("echo %d >/etc/vfs", vfsPerPF)); err != nil {
		return err
	}
	if err := t.node.Reboot(ctx); err != nil {
		return err
	}
	t.node.VFsPerPF = vfsPerPF
	if err := t.node.RegisteredAfter(ctx, registrations, cluster.Daemons...); err != nil {
		return err
	}
	next, o, late, err := t.admit(ctx, s, pair(2))
	if err != nil {
		return err
	}
	state, err := t.node.State(ctx, holder)
	if err != nil {
		return err
	}
	t.add(Row{
		Setup: t.title(s), Scenario: "node reboot, then 2+2", Problem: judge(s, pair(2), o),
		outcome: o, note: join("the pod from before is "+state, lateNote(late)),
	})
	return t.node.Remove(ctx, holder, next)
}
