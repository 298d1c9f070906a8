// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

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
