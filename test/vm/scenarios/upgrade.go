// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

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
		for _, args := range [][]string{
			{"set", "image", "daemonset/" + daemon, "*=" + image},
			{"rollout", "status", "--timeout=5m", "daemonset/" + daemon},
		} {
			if _, err := n.Kubectl(ctx, "", append([]string{"-n", "kube-system"}, args...)...); err != nil {
				return err
			}
		}
		return nil
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
