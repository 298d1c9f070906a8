// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// swap moves the node to the stand-in for the stock plugins and back to Tandem, as in docs/deployers.md.
// Existing pods must survive each move with their devices, and new ones must get devices.
func (t *tester) swap(ctx context.Context, s setup) error {
	if _, err := t.node.Kubectl(ctx, "", "apply", "-k", "test/vm/deploy/stand-in"); err != nil {
		return err
	}
	ofTandem, err := t.hold(ctx, pair(2))
	if err != nil {
		return err
	}
	stock := setup{scenarios: s.scenarios}
	standIn := []string{cluster.StandIn}
	away := move{
		"from Tandem to the stock plugins, then 1+1", "tandem.dev/node-",
		standIn, cluster.Daemons, nil, pair(1),
	}
	ofStock, err := t.moved(ctx, s, stock, away, ofTandem)
	if err != nil {
		return err
	}
	back := move{
		"from the stock plugins to Tandem, then 2+2", "tandem.dev/node=true",
		cluster.Daemons, standIn, nil, pair(2),
	}
	next, err := t.moved(ctx, s, s, back, ofTandem, ofStock)
	if err != nil {
		return err
	}
	_, err = t.node.Kubectl(ctx, "", "delete", "-k", "test/vm/deploy/stand-in")
	return errors.Join(
		t.agreed(ctx, s, "after the stock plugins"), err, t.node.Remove(ctx, ofTandem.pod, ofStock.pod, next.pod))
}

// move is a change of a label of the node that exchanges plugins.
type move struct {
	name, label string
	come, gone  []string // DaemonSets
	// waits for the offered devices after the move; nil for all GPUs and VFs
	offers func(context.Context) error
	next   scenario // the pod after the move
}

// holder is a surviving pod with its view.
type holder struct {
	pod string
	saw *cluster.Outcome
}

// hold creates a pod that keeps running.
func (t *tester) hold(ctx context.Context, c scenario) (holder, error) {
	h := holder{pod: t.podName()}
	var err error
	h.saw, err = t.node.Create(ctx, c.pod(h.pod))
	return h, err
}

// shared returns a device of two pods, or "".
func shared(pods []holder) string {
	owners := map[string]string{}
	for _, p := range pods {
		for _, v := range p.saw.Containers {
			for _, device := range slices.Concat(v.GPUs, v.VFs) {
				if other := owners[device]; other != "" {
					return fmt.Sprintf("%s and %s both have %s", other, p.pod, device)
				}
				owners[device] = p.pod
			}
		}
	}
	return ""
}

// moved adds a row on one move, and returns the pod created after it. Existing pods must be unchanged, and
// share no device.
func (t *tester) moved(
	ctx context.Context, s, judged setup, m move, before ...holder,
) (next holder, err error) {
	start := time.Now()
	was, err := t.states(ctx, before)
	if err != nil {
		return next, err
	}
	t.node.Storm(m.name)
	if err := t.move(ctx, m); err != nil {
		return next, err
	}
	late := 0
	next.pod, next.saw, late, err = t.admit(ctx, judged, m.next)
	if err != nil {
		return next, err
	}
	r := Row{Setup: t.title(s), Scenario: m.name, outcome: next.saw, Problem: judge(judged, m.next, next.saw)}
	is, err := t.states(ctx, before)
	two := shared(append(slices.Clip(before), next))
	switch {
	case err != nil:
		return next, err
	case two != "":
		r.Problem = two
	case is != was:
		r.Problem = fmt.Sprintf("the running pods were %s and are %s", was, is)
	default:
		r.note = join("of the running pods "+is, lateNote(late))
	}
	t.add(r)
	t.Say("  the move took %.0f s", time.Since(start).Seconds())
	return next, nil
}

func (t *tester) states(ctx context.Context, pods []holder) (string, error) {
	var list []string
	for _, p := range pods {
		state, err := t.node.State(ctx, p.pod)
		if err != nil {
			return "", err
		}
		list = append(list, p.pod+" is "+state)
	}
	return strings.Join(list, ", "), nil
}

// move is steps 1 to 5 of docs/deployers.md, with running pods, and step 3 of docs/dra.md.
func (t *tester) move(ctx context.Context, m move) error {
	before, err := t.node.Registrations(ctx)
	if err != nil {
		return err
	}
	if err := t.node.KubectlEach(ctx, []string{"cordon", cluster.NodeName},
		[]string{"label", "--overwrite", "node", cluster.NodeName, m.label}); err != nil {
		return err
	}
	if err := t.node.RegisteredAfter(ctx, before, m.come...); err != nil {
		return err
	}
	for _, daemonSet := range m.gone {
		if _, err := t.node.Kubectl(ctx, "", "-n", "kube-system", "wait", "--timeout=5m",
			"--for=jsonpath={.status.currentNumberScheduled}=0", "daemonset/"+daemonSet); err != nil {
			return err
		}
	}
	offers := m.offers
	if offers == nil {
		offers = t.node.OffersAll
	}
	if err := offers(ctx); err != nil {
		return err
	}
	_, err = t.node.Kubectl(ctx, "", "uncordon", cluster.NodeName)
	return err
}

// upgrade moves the node to the version before and back, one daemon after the other, in both orders, under a
// pod of each version: as in docs/install.md, with the image of the DaemonSet alone. While one daemon is of
// each version the kubelet, a container and the node restart.
func (t *tester) upgrade(ctx context.Context, s setup) error {
	gpuBack := ofVersion("tandem-gpu", build.Earlier, "the version before")
	rdmaBack := ofVersion("tandem-rdma", build.Earlier, "the version before")
	gpu := ofVersion("tandem-gpu", build.Image, "this version")
	rdma := ofVersion("tandem-rdma", build.Image, "this version")
	kubelet := fault{"kubelet restart", inGuest("systemctl restart kubelet"), cluster.Daemons, 2}
	for _, part := range []func() error{
		func() error { return t.suffer(ctx, s, gpuBack, kubelet, rdmaBack) },
		func() error { return t.suffer(ctx, s, gpu, kubelet) },
		func() error { return t.containerRestart(ctx, s) },
		func() error { return t.suffer(ctx, s, rdma, kubelet) },
		func() error { return t.suffer(ctx, s, rdmaBack) },
		func() error { return t.restart(ctx, s, t.node.VFsPerPF) },
		func() error { return t.suffer(ctx, s, gpuBack) },
		func() error { return t.suffer(ctx, s, rdma, gpu) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// ofVersion gives a DaemonSet the image of a version.
func ofVersion(daemon, image, name string) fault {
	return fault{daemon + " of " + name, func(ctx context.Context, n *cluster.Node) error {
		return n.KubectlEach(ctx,
			[]string{"-n", "kube-system", "set", "image", "daemonset/" + daemon, "*=" + image},
			[]string{"-n", "kube-system", "rollout", "status", "--timeout=5m", "daemonset/" + daemon})
	}, []string{daemon}, 2}
}

// endContainers ends the first processes of the pods' containers, which sleep (package cluster). The pattern
// does not occur in itself, so that the script does not end itself.
const endContainers = `for process in /proc/[0-9]*; do
	grep -q 'sleep 100000[0]' $process/cmdline 2>/dev/null && kill ${process#/proc/} 2>/dev/null
done; true`

// containerRestart ends the container of a pod. The kubelet starts it again with the recorded answers of the
// plugins: it has to have the same devices.
func (t *tester) containerRestart(ctx context.Context, s setup) error {
	h, err := t.hold(ctx, s.pair(2))
	if err != nil {
		return err
	}
	start := time.Now()
	if _, err := t.node.Run(ctx, endContainers); err != nil {
		return err
	}
	again, err := t.node.SeeAgain(ctx, h.pod)
	if err != nil {
		return err
	}
	again.Took = time.Since(start)
	r := Row{Setup: t.title(s), Scenario: "container restart", outcome: again}
	if r.Problem = judge(s, s.pair(2), again); r.Problem == "" && !sameDevices(again, h.saw) {
		r.Problem = "it has other devices than before"
	}
	t.add(r)
	return t.node.Remove(ctx, h.pod)
}

// sameDevices reports whether the containers of a pod see the same devices twice.
func sameDevices(a, b *cluster.Outcome) bool {
	return slices.EqualFunc(a.Containers, b.Containers, func(a, b cluster.View) bool {
		return slices.Equal(a.GPUs, b.GPUs) && slices.Equal(a.VFs, b.VFs)
	})
}
