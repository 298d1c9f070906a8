// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// After a takeover between the Allocates of VFs and GPUs the pairs file has both, as without a takeover. The
// container keeps the file with which it starts.
func TestPairsFileOverATakeover(t *testing.T) {
	t.Parallel()
	a, dir := newPaired(t)
	c := a.coordinator
	gpu, vf := a.all[gpus][0], a.all[vfs][0]
	a.giveVF("c", vf)
	file := filepath.Join(dir, "file.json")
	named := []pairs.VF{{ID: vf.ID, Address: vf.Address, Resource: vfs, RDMA: "mlx5_9"}}
	if _, written, _ := c.Pair(vfs, []string{vf.ID}, file, named); !written {
		t.Fatal("the file is not written")
	}
	a.coordinator = a.successor(c.now)
	a.coordinator.pairs = c.pairs
	a.announce()
	a.now = a.now.Add(time.Second)
	a.prefer(gpus, []string{gpu.ID}, nil, 1)
	a.allocated(gpus, []string{gpu.ID})
	got, err := pairs.Read(file)
	if err != nil || len(got.Pairs) != 1 || got.Pairs[0].GPU == nil || got.Pairs[0].GPU.ID != gpu.ID ||
		got.Pairs[0].VF != named[0] {
		t.Errorf("%+v, %v", got, err)
	}
}

// A client of the socket, a plugin of an earlier version included, has no file written elsewhere.
func TestPairsFileOutsideTheFolder(t *testing.T) {
	t.Parallel()
	a, folder := newPaired(t)
	c := a.coordinator
	dir := filepath.Dir(folder)
	vf := a.all[vfs][0]
	a.giveVF("c", vf)
	for _, file := range []string{
		filepath.Join(dir, "elsewhere.json"), folder + "/../elsewhere.json", "pairs.json",
		folder + "/", folder + "/.", folder + "/..",
	} {
		served, written, _ := c.Pair(vfs, []string{vf.ID}, file, nil)
		if info, err := os.Lstat(file); written || err == nil && !info.IsDir() || len(served) == 0 {
			t.Errorf("%s: written %t, %v", file, written, err)
		}
	}
}

// After a takeover the kubelet can ask for one half before the plugin of the other half has announced its
// devices: the question waits, for a short time only.
func TestQuestionRightAfterATakeover(t *testing.T) {
	for name, joins := range map[string]bool{"the other plugin joins": true, "the other plugin is gone": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
				next := a.successor(time.Now)
				announce := func(resource string, kind device.Kind) {
					if err := next.Announce(resource, kind, device.Announcement{Devices: a.all[resource]}); err != nil {
						t.Error(err)
					}
				}
				announce(vfs, device.VF)
				if joins {
					time.AfterFunc(time.Millisecond, func() { announce(gpus, device.GPU) })
				}
				began := time.Now()
				_, why, err := next.Prefer(t.Context(), &api.PreferRequest{
					Resource: vfs, Available: ids(a.all[vfs]), Size: 2,
				})
				history := next.history.all()
				pairs := history[len(history)-1].GetPairs()
				switch waited := time.Since(began); {
				case err != nil:
					t.Error(err)
				case joins && (waited != time.Millisecond || len(pairs) != 2):
					t.Errorf("answered after %s with the pairs %v: %s", waited, pairs, why)
				case !joins && (waited == 0 || waited > 100*time.Millisecond):
					t.Errorf("answered after %s", waited)
				}
				if !joins {
					<-time.After(joinTime)
					began := time.Now()
					if _, _, err := next.Prefer(t.Context(), &api.PreferRequest{
						Resource: vfs, Available: ids(a.all[vfs]), Size: 2,
					}); err != nil || time.Since(began) > 0 {
						t.Errorf("a question later is answered after %s: %v", time.Since(began), err)
					}
				}
			})
		})
	}
}
