// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	u.must(errors.Join(u.Pair.GPU.Kill(), u.Pair.RDMA.Kill()))
	files, err := filepath.Glob(filepath.Join(u.RunDir(), "*"))
	u.must(err)
	for _, name := range files {
		u.must(os.RemoveAll(name))
	}
	boot, err := system.Disk{}.BootID()
	u.must(err)
	u.must(os.WriteFile(filepath.Join(u.RunDir(), "vfs.json"), fmt.Appendf(nil, `{"boot": %q, "listed": {},
		"hidden": {}, "hints": {%q: {"hints": true, "since": "2026-01-01T00:00:00Z", "settled": true}}}`,
		boot, rig.VF), 0o600))
	u.must(u.Pair.RDMA.Start())
	u.awaitHints(true)
	running := shape{app: []want{{vfs: 2}}}.pod("running", u.GPU)
	u.must(u.Node.Admit(running))
	u.must(u.Pair.GPU.Start())
	u.must(u.WaitReady(deadline(t)))
	u.awaitHints(false)
	u.restartKubelet()
	whole := shape{app: []want{{8, 8}}}.pod("whole", u.GPU)
	_, err = u.Admit(deadline(t), whole)
	u.must(err)
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
	u.must(err)
	u.awaitHints(false)
	u.must(u.Node.Remove(pod))
	u.must(u.Node.Admit(node.Pod("other", nil, []v1.Container{node.Container("app", nil)})))
	u.awaitHints(true)
}

// awaitHints waits until the kubelet has the NUMA nodes of all VFs, or of none.
func (u *upgrade) awaitHints(want bool) {
	u.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx := deadline(u.t); ; {
		inventory := u.Node.Inventory(rig.VF)
		other := len(inventory) != u.VFs()
		for _, nodes := range inventory {
			other = other || len(nodes) > 0 != want
		}
		if !other {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			u.t.Fatalf("hints %t: the kubelet has %v", want, inventory)
		}
	}
}
