package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// fault is something that happens to the node while a pod runs.
type fault struct {
	name string
	do   func(context.Context, *node) error
	anew []string // daemons that the kubelet has to know anew after it
	next int      // pairs of the pod that comes then
}

var faults = []fault{
	{"kill -9 of tandem-gpu", inGuest("kill -9 $(pidof tandem-gpu)"), []string{"tandem-gpu"}, 2},
	{"kill -9 of tandem-rdma", inGuest("kill -9 $(pidof tandem-rdma)"), []string{"tandem-rdma"}, 2},
	{"kubelet restart", inGuest("systemctl restart kubelet"), daemons, 2},
	{"rolling update", func(ctx context.Context, n *node) error { return n.rollOut(ctx) }, nil, 2},
	{"VFs made again", remakeVFs(0), nil, 4}, // more than are left of the first socket
	{"clock ten minutes ahead", inGuest(setClock("+ 600")), nil, 2},
	{"clock ten minutes back", inGuest(setClock("- 600")), nil, 2},
}

// lostVF lasts until the node starts again.
var lostVF = fault{"one VF less", remakeVFs(1), nil, 4}

func setClock(by string) string { return "date -s @$(($(date +%s) " + by + "))" }

func inGuest(script string) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		_, err := n.run(ctx, script)
		return err
	}
}

// lastNIC is the one whose VFs are taken last.
const lastNIC = "$(ls -d /sys/bus/pci/drivers/igb/0* | tail -n 1)"

// settle has the containers' view of sysfs forget what is gone, which an overlay remembers. Then it tells of a change: of an
// RDMA device that comes late the kernel would, if the device were the NIC's own.
const settle = " &&\necho 2 >/proc/sys/vm/drop_caches && echo change >" + lastNIC + "/uevent"

// remakeVFs takes all VFs of a NIC away and makes them again, as it is when their number is changed, or fewer.
func remakeVFs(fewer int) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		if _, err := n.run(ctx, "echo 0 >"+lastNIC+"/sriov_numvfs"+settle); err != nil {
			return err
		}
		if err := n.offers(ctx, vfResource, n.vfs()-n.vfsPerPF); err != nil {
			return err
		}
		if _, err := n.run(ctx, fmt.Sprintf("echo %d >%s/sriov_numvfs && guest rdma", n.vfsPerPF-fewer, lastNIC)+settle); err != nil {
			return err
		}
		return n.offers(ctx, vfResource, n.vfs()-fewer)
	}
}

// suffer has faults happen, one after the other, while a pod with two pairs runs. That pod has to live on, with its devices, and a
// new one after each has to get pairs of what is left.
func (t *tester) suffer(ctx context.Context, s setup, list ...fault) error {
	holder := t.podName()
	if _, err := t.node.create(ctx, holder, pair(2)); err != nil {
		return err
	}
	gone := func() error { return nil } // waits until the pod after the fault before has gone, while the next fault happens
	for _, f := range list {
		if err := t.stage(ctx, f.name, 10*time.Minute, func(stage context.Context) error {
			next, err := t.sufferOne(stage, s, f, holder, gone)
			gone = t.removing(ctx, next)
			return err
		}); err != nil {
			return err
		}
	}
	return errors.Join(gone(), t.node.remove(ctx, holder))
}

// sufferOne returns the pod that came after the fault.
func (t *tester) sufferOne(ctx context.Context, s setup, f fault, holder string, gone func() error) (next string, err error) {
	before, err := t.state(ctx, holder)
	if err != nil {
		return "", err
	}
	registrations, err := t.node.registrations(ctx)
	if err != nil {
		return "", err
	}
	if err := f.do(ctx, t.node); err != nil {
		return "", err
	}
	if err := errors.Join(t.node.registeredAfter(ctx, registrations, f.anew...), gone()); err != nil {
		return "", err
	}
	then := pair(f.next)
	next, o, late, err := t.admit(ctx, s, then)
	if err != nil {
		return "", err
	}
	r := row{setup: t.title(s), scenario: f.name + ", then " + then.name, outcome: o, problem: judge(s, then, o)}
	after, err := t.state(ctx, holder)
	switch {
	case err != nil:
		return "", err
	case after != before:
		r.problem = fmt.Sprintf("the running pod was %s and is %s", before, after)
	default:
		r.note = join("the running pod was "+after, lateNote(late))
	}
	t.add(r)
	return next, t.agreed(ctx, s, "after "+f.name)
}

// restart reboots the node under a pod, into its next phase, and looks at the next pod. The first is the kubelet's: it admits the pods
// that it had again when it starts, before any plugin is there, and refuses those with devices, whoever's the plugin is.
func (t *tester) restart(ctx context.Context, s setup, then phase) error {
	holder := t.podName()
	if _, err := t.node.create(ctx, holder, pair(2)); err != nil {
		return err
	}
	registrations, err := t.node.registrations(ctx)
	if err != nil {
		return err
	}
	if _, err := t.node.run(ctx, fmt.Sprintf("echo %d >/etc/vfs", then.vfsPerPF)); err != nil {
		return err
	}
	if err := t.node.reboot(ctx); err != nil {
		return err
	}
	t.node.phase = then
	if err := t.node.registeredAfter(ctx, registrations, daemons...); err != nil {
		return err
	}
	next, o, late, err := t.admit(ctx, s, pair(2))
	if err != nil {
		return err
	}
	state, err := t.state(ctx, holder)
	if err != nil {
		return err
	}
	t.add(row{setup: t.title(s), scenario: "node reboot, then 2+2", outcome: o, problem: judge(s, pair(2), o), note: join("the pod from before is "+state, lateNote(late))})
	return t.node.remove(ctx, holder, next)
}

// state is how a pod is: its phase and how often its container was started again.
func (t *tester) state(ctx context.Context, name string) (string, error) {
	pod, err := t.node.watchPod(ctx, name, func(*corev1.Pod) bool { return true })
	if err != nil {
		return "", err
	}
	restarts := int32(0)
	for _, status := range pod.Status.ContainerStatuses {
		restarts += status.RestartCount
	}
	state := fmt.Sprintf("%s, started again %d times", pod.Status.Phase, restarts)
	if pod.Status.Reason != "" {
		state += " (" + pod.Status.Reason + ": " + strings.TrimSpace(pod.Status.Message) + ")"
	}
	return state, nil
}
