// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// bothWays runs a test once with daemons that register at kubelet.sock and once with daemons that the plugin
// watcher finds.
func bothWays(t *testing.T, test func(*testing.T, *rig.Rig)) {
	for name, watcher := range map[string]bool{"register": false, "watcher": true} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, rig.Setup{
				Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true, Coordinated: true, Watcher: watcher,
			})
			test(t, r)
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
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == "kubelet.sock" })
}

// A kubelet that starts again, three times, asks nobody for the pods that were there. Every time it wipes the
// sockets in its folder (pkg/kubelet/cm/devicemanager/manager.go, CleanupPluginDirectory), and the daemons
// come under new names; 1.37 never lets go of a name that comes twice, and would not notice the death of a
// daemon any more.
func TestKubeletRestarts(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig.Rig) {
		pod := admitBest(t, r, "before", want{2, 2})
		held := r.Node.Devices(pod, "app-0")
		used := map[string]bool{}
		for i := range 3 {
			for _, name := range sockets(t, r.PluginSockets()) {
				used[name] = true
			}
			if _, err := r.Node.Restart(); err != nil {
				t.Fatal(err)
			}
			if err := r.WaitReady(deadline(t)); err != nil {
				t.Fatal(err)
			}
			for _, name := range sockets(t, r.PluginSockets()) {
				if used[name] {
					t.Errorf("socket %s registered at two kubelets", name)
				}
			}
			if diff := cmp.Diff(held, r.Node.Devices(pod, "app-0")); diff != "" {
				t.Errorf("devices before and after the restart (-before +after):\n%s", diff)
			}
			next := admitBest(t, r, fmt.Sprint("next-", i), want{2, 2})
			if err := r.Remove(next); err != nil {
				t.Fatal(err)
			}
		}
		for _, resource := range []string{r.GPU, rig.VF} {
			kill(t, r, resource)
			if err := daemonOf(r, resource).Start(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.WaitReady(deadline(t)); err != nil {
			t.Fatal(err)
		}
		admitBest(t, r, "after", want{4, 4})
	})
}

// A socket that somebody deletes is replaced, and the pods of that time notice nothing.
func TestSocketsAreDeleted(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig.Rig) {
		for _, name := range []string{"first", "second"} {
			position := r.Pair.Log.Len()
			for _, socket := range sockets(t, r.PluginSockets()) {
				if err := os.Remove(socket); err != nil {
					t.Fatal(err)
				}
			}
			waitRegistered(t, r, position, 2)
			admitBest(t, r, name, want{2, 2})
		}
	})
}

// In a rolling update with surge the new daemon registers before the old one goes. A kubelet before 1.37 then
// disconnects the new one, which registers again; a later one goes on with it, and its devices are there all
// the time.
func TestRollingUpdateWithSurge(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig.Rig) {
		pods := []*v1.Pod{admitBest(t, r, "before", want{1, 1})}
		for _, daemon := range []**pair.Daemon{&r.Pair.GPU, &r.Pair.RDMA} {
			position := r.Pair.Log.Len()
			before, after := *daemon, (*daemon).Another()
			if err := after.Start(); err != nil {
				t.Fatal(err)
			}
			*daemon = after
			waitRegistered(t, r, position, 1)
			if err := before.Stop(); err != nil {
				t.Fatal(err)
			}
			registrations := 1
			if node.Version == "1.36" {
				registrations = 2
			}
			waitRegistered(t, r, position, registrations)
			pods = append(pods, admitBest(t, r, after.Name(), want{2, 2}))
		}
		for _, pod := range pods {
			if err := r.Remove(pod); err != nil {
				t.Fatal(err)
			}
		}
		admitBest(t, r, "all", want{8, 8})
	})
}

// waitRegistered waits until so many registrations have happened since a position in the log, and all devices
// are there.
func waitRegistered(t *testing.T, r *rig.Rig, position, count int) {
	t.Helper()
	_, err := r.Pair.Log.Wait(deadline(t), position, func(lines []pair.Line) bool {
		return registrations(lines) >= count
	})
	if err == nil {
		err = r.WaitReady(deadline(t))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func registrations(lines []pair.Line) int {
	registered := 0
	for _, line := range lines {
		if line.Message == "registered" {
			registered++
		}
	}
	return registered
}
