// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// most is a claim for as many pairs as there are up to four.
func (n *node) most(name string) (*resourceapi.ResourceClaim, int) {
	for count := 4; count > 0; count /= 2 {
		if claim := n.claim(name, want{"pairs", pool.TypePair, count}); claim != nil {
			return claim, count
		}
	}
	return nil, 0
}

// Pairs are handed out as they are named, in one order of GPUs and VFs, on every machine; a second prepare
// says the same, and afterwards nothing is left.
func TestPairs(t *testing.T) {
	for _, machine := range machines.Names() {
		for _, vfs := range []int{1, 4} {
			for _, counters := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%d/%v", machine, vfs, counters), func(t *testing.T) {
					t.Parallel()
					n := newNode(t, machine, vfs, toldVFs, counters)
					claim, count := n.most("train")
					if count == 0 {
						t.Skip("no pair on this machine")
					}
					first := n.ready(claim)
					if len(first) != count || len(first[0].CDIDeviceIDs) == 0 || first[0].PoolName != poolName {
						t.Fatalf("answer %+v", first)
					}
					n.check(claim)
					n.aligned(claim, count)
					edits := n.edits(claim, "pairs")
					ids := strings.Split(variable(edits, "PCIDEVICE_TANDEM_DEV_RDMA_VF"), ",")
					if len(ids) != count || len(edits.Mounts) != 1 || variable(edits, "NCCL_IB_HCA") == "" {
						t.Errorf("environment %q, mounts %v", edits.Env, edits.Mounts)
					}
					if again := n.ready(claim); fmt.Sprint(again) != fmt.Sprint(first) {
						t.Errorf("first %v, then %v", first, again)
					}
					if n.asked.Load() > 0 {
						t.Errorf("asked for %d pods", n.asked.Load())
					}
					if bound, _ := Bound([]Claim{n.prepared(claim.UID)}); len(bound) != count {
						t.Errorf("bound %v", bound)
					}
					if err := n.end(claim); err != nil {
						t.Fatal(err)
					}
					n.check()
				})
			}
		}
	}
}

// Who does not want to be told of pairs is not.
func TestUntold(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, plainVFs, true)
	claim := n.need("train", want{"pairs", pool.TypePair, 2})
	n.ready(claim)
	edits := n.edits(claim, "pairs")
	if len(edits.Mounts) > 0 || len(edits.Env) != 2 || len(names(n.Host.PairsDir)) > 0 {
		t.Errorf("environment %q, mounts %v, pairs files %v", edits.Env, edits.Mounts, names(n.Host.PairsDir))
	}
}

// The checkpoint has the pods of a claim, which nothing else tells once the claim is deleted by force.
func TestPodsOfAClaim(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 1, plainVFs, true)
	claim := n.need("train", want{"gpu", pool.TypeGPU, 1})
	n.ready(claim)
	if pods := n.prepared(claim.UID).Pods; !slices.Equal(pods, []Pod{{Name: "pod", UID: "pod"}}) {
		t.Errorf("pods %v", pods)
	}
}

// Prepare and unprepare of a claim among those of many other pods, with all writes to the disk, including
// p99.
func BenchmarkPrepare(b *testing.B) {
	for _, c := range []struct {
		name  string
		vfs   int
		claim func(*node) *claimOf
	}{
		{"8 pairs of 64 VFs", 8, pairsOf(8)},
		{"8 GPUs and 8 VFs of 64", 8, func(n *node) *claimOf { return n.extended("train", [2]int{8, 8}) }},
		{"8 pairs of 1016 VFs", 127, pairsOf(8)},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := newNode(b, "oci-mi300x-derived", c.vfs, toldVFs, true)
			n.allocate(pool.TypeVF, 1)
			claim := c.claim(n)
			for i := range min(40, 8*c.vfs-20) {
				n.ready(n.need(fmt.Sprint("other-", i), want{"vf", pool.TypeVF, 1}))
			}
			var prepare, unprepare []time.Duration
			devices := n.used
			for b.Loop() {
				start := time.Now()
				n.ready(claim)
				prepare = append(prepare, time.Since(start))
				start = time.Now()
				if err := n.end(claim); err != nil {
					b.Fatal(err)
				}
				unprepare = append(unprepare, time.Since(start))
				n.used = devices
			}
			for name, took := range map[string][]time.Duration{"prepare": prepare, "unprepare": unprepare} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100])/1e6, name+"-p99-ms")
				b.ReportMetric(float64(took[len(took)/2])/1e6, name+"-p50-ms")
			}
		})
	}
}

// Two processes share the folder while one takes over from the other. One process has read the checkpoint and
// is about to change the first file when the other prepares a claim: the other waits, and neither loses what
// the other wrote.
func TestTwoProcesses(t *testing.T) {
	for name, tc := range map[string]struct {
		call func(p *Preparer, n *node, first, fresh *claimOf) error
		left func(first, fresh, second *claimOf) []*claimOf
	}{
		"prepare": {
			func(p *Preparer, n *node, _, fresh *claimOf) error {
				return n.prepareBy(p, n.state, fresh)[fresh.UID].Err
			},
			func(first, fresh, second *claimOf) []*claimOf { return []*claimOf{first, fresh, second} },
		},
		"unprepare": {
			func(p *Preparer, n *node, first, _ *claimOf) error {
				gone := kubeletplugin.NamespacedObject{UID: first.UID}
				return p.Unprepare([]kubeletplugin.NamespacedObject{gone})
			},
			func(_, _, second *claimOf) []*claimOf { return []*claimOf{second} },
		},
		"restore": {
			func(p *Preparer, n *node, first, _ *claimOf) error {
				if err := os.Remove(p.specPath(first.UID)); err != nil {
					return err
				}
				return p.Restore(n.t.Context(), n.state)
			},
			func(first, _, second *claimOf) []*claimOf { return []*claimOf{first, second} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			first, fresh, second := n.pair("first"), n.pair("fresh"), n.pair("second")
			n.ready(first)
			other := New(n.Options)
			var work sync.WaitGroup
			held := n.atFirstChange(func() {
				done := make(chan struct{})
				work.Go(func() {
					defer close(done)
					if err := n.prepareBy(other, n.state, second)[second.UID].Err; err != nil {
						t.Error(err)
					}
				})
				n.awaitWaiting(done)
			})
			if err := tc.call(held, n, first, fresh); err != nil {
				t.Error(err)
			}
			work.Wait()
			n.check(tc.left(first, fresh, second)...)
		})
	}
}

// pair needs a claim of one pair.
func (n *node) pair(name string) *claimOf { return n.need(name, want{"pairs", pool.TypePair, 1}) }

// atFirstChange is another process on the node, which does something before its first change of a file.
func (n *node) atFirstChange(do func()) *Preparer {
	options := n.Options
	once := sync.OnceFunc(do)
	options.Host.Disk = system.Disk{Open: func(dir string) (system.Folder, error) {
		once()
		return n.Host.Disk.Folder(dir)
	}}
	return New(options)
}

// awaitWaiting returns when a process waits for the lock of claims, by the kernel's list of locks, or when
// the process has ended without waiting.
func (n *node) awaitWaiting(done <-chan struct{}) {
	n.t.Helper()
	info, err := os.Stat(filepath.Join(n.Dir, lockName))
	if err != nil {
		n.t.Fatal(err)
	}
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			n.t.Fatal(err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
				return
			}
		}
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}
