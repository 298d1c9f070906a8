// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// TestHintsFlip: a pod runs that was admitted with NUMA hints, before the GPUs were known. The plugin for
// GPUs joins, and the hints are withdrawn, since there are four VFs for each GPU. The restarted kubelet
// admits the pod again, and also a pod of all GPUs, whose VFs have no hints.
func TestHintsFlip(t *testing.T) {
	u := startUpgrade(t, daemons(t), stockPool)
	u.forget()
	boot, err := system.Disk{}.BootID()
	must(u.t, err)
	must(u.t, os.WriteFile(filepath.Join(u.RunDir(), "vfs.json"), fmt.Appendf(nil, `{"boot": %q, "listed": {},
		"hidden": {}, "hints": {%q: {"hints": true, "since": "2026-01-01T00:00:00Z", "settled": true}}}`,
		boot, rig.VF), 0o600))
	must(u.t, u.Pair.RDMA.Start())
	u.awaitHints(true)
	running := shape{app: []want{{vfs: 2}}}.pod("running", u.GPU)
	must(u.t, u.Node.Admit(running))
	must(u.t, u.Pair.GPU.Start())
	must(u.t, u.WaitReady(deadline(t)))
	u.awaitHints(false)
	u.restartKubelet()
	whole := shape{app: []want{{8, 8}}}.pod("whole", u.GPU)
	_, err = u.Admit(deadline(t), whole)
	must(u.t, err)
	u.restartKubelet()
}

// TestHintsAfterTheLastPod: a pod gets a device before hints can be given, and ends. The kubelet frees the
// device at its next admission, without a word in its checkpoint, and the hints are given nevertheless.
func TestHintsAfterTheLastPod(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for half a minute at least")
	}
	t.Parallel()
	u := &upgrade{t: t, Rig: startRig(t, rig.Setup{
		Machine: "oci-mi300x-derived", VFsPerPF: 1, Auto: true, Coordinated: true, PodsAPI: true,
	})}
	pod := shape{app: []want{{1, 1}}}.pod("first", u.GPU)
	_, err := u.Admit(deadline(t), pod)
	must(u.t, err)
	u.awaitHints(false)
	must(u.t, u.Node.Remove(pod))
	must(u.t, u.Node.Admit(node.Pod("other", nil, []v1.Container{node.Container("app", nil)})))
	u.awaitHints(true)
}

// awaitHints waits until the kubelet has the NUMA nodes of all VFs, or of none.
func (u *upgrade) awaitHints(want bool) {
	u.t.Helper()
	err := node.Poll(deadline(u.t), func() bool {
		inventory := u.Node.Inventory(rig.VF)
		isOther := func(nodes []int) bool { return len(nodes) > 0 != want }
		return len(inventory) == u.VFs() && !slices.ContainsFunc(slices.Collect(maps.Values(inventory)), isOther)
	})
	if err != nil {
		u.t.Fatalf("hints %t: the kubelet has %v: %v", want, u.Node.Inventory(rig.VF), err)
	}
}
