// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// A kubelet that starts again, three times, asks nobody for the pods that were there. Every time it wipes the
// sockets in its folder (pkg/kubelet/cm/devicemanager/manager.go, CleanupPluginDirectory), and the daemons,
// which register at kubelet.sock or which the plugin watcher finds, come under new names; 1.37 never lets go
// of a name that comes twice, and would not notice the death of a daemon any more.
func TestKubeletRestarts(t *testing.T) {
	for name, watcher := range map[string]bool{"register": false, "watcher": true} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, rig.Setup{
				Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true, Coordinated: true, Watcher: watcher,
			})
			pod := admitBest(t, r, "before", want{2, 2})
			held := r.Node.Devices(pod, "app-0")
			used := map[string]bool{}
			for i := range 3 {
				for _, name := range sockets(t, r.PluginSockets()) {
					used[name] = true
				}
				_, err := r.Node.Restart()
				must(t, err)
				must(t, r.WaitReady(deadline(t)))
				for _, name := range sockets(t, r.PluginSockets()) {
					if used[name] {
						t.Errorf("socket %s registered at two kubelets", name)
					}
				}
				if diff := cmp.Diff(held, r.Node.Devices(pod, "app-0")); diff != "" {
					t.Errorf("devices before and after the restart (-before +after):\n%s", diff)
				}
				must(t, r.Remove(admitBest(t, r, fmt.Sprint("next-", i), want{2, 2})))
			}
			for _, resource := range []string{r.GPU, rig.VF} {
				kill(t, r, resource)
				must(t, daemonOf(r, resource).Start())
			}
			must(t, r.WaitReady(deadline(t)))
			admitBest(t, r, "after", want{4, 4})
			for folder, want := range map[string]int{r.PluginSockets(): 2, r.OtherSockets(): 0} {
				if names := sockets(t, folder); len(names) != want {
					t.Errorf("sockets in %s: %v, want %d", folder, names, want)
				}
			}
		})
	}
}

// sockets are the names of the daemons' sockets in a folder, which may not be there.
func sockets(t *testing.T, folder string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.sock"))
	must(t, err)
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == "kubelet.sock" })
}

// waitRegistered waits until so many registrations have happened since a position in the log, and all devices
// are there.
func waitRegistered(t *testing.T, r *rig.Rig, position, count int) {
	t.Helper()
	must(t, registered(deadline(t), r.Pair.Log, position, count))
	must(t, r.WaitReady(deadline(t)))
}

// registered waits until so many registrations have happened since a position in the log.
func registered(ctx context.Context, log *pair.Log, position, count int) error {
	_, err := log.Wait(ctx, position, func(lines []pair.Line) bool {
		registrations := 0
		for _, line := range lines {
			if line.Message == "registered" {
				registrations++
			}
		}
		return registrations >= count
	})
	return err
}

// kill kills the daemon of a resource and waits until the kubelet has noticed.
func kill(t *testing.T, r *rig.Rig, resource string) {
	t.Helper()
	must(t, daemonOf(r, resource).Kill())
	must(t, r.Node.WaitAllocatable(deadline(t), resource, 0))
}

func daemonOf(r *rig.Rig, resource string) *pair.Daemon {
	if resource == r.GPU {
		return r.Pair.GPU
	}
	return r.Pair.RDMA
}

// admitBest admits a pod with one container, which has to get the best pairs.
func admitBest(t *testing.T, r *rig.Rig, name string, w want) *v1.Pod {
	t.Helper()
	pod := shape{app: []want{w}}.pod(name, r.GPU)
	placements, err := r.Admit(deadline(t), pod)
	must(t, err)
	for _, p := range placements {
		if p.Pairs != p.Best {
			t.Errorf("pod %s, %v asked first: %v, want %v\n%s", name, p.Asked[0], p.Pairs, p.Best, pair.Text(p.Log))
		}
	}
	return pod
}
