// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
)

// hintedNode is a node with four GPUs on each of two NUMA nodes, and a PF with VFs on each.
type hintedNode struct {
	*testing.T
	known  Known
	finder pools.Finder
	log    bytes.Buffer
	sys    functions.Sysfs
	vfs    *VFs

	wish    pools.Decision      // of the rule
	unknown bool                // the GPUs are not known yet
	judged  []int               // the numbers of devices that the rule was asked for
	changes []string            // told of
	held    map[string][]string // by containers
	heldErr error

	meanwhile func() // while the devices of containers are read
}

// runHinted runs a test with a node of two NICs with four VFs each, whose clock does not wait.
func runHinted(t *testing.T, test func(n *hintedNode)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(newHintedNode(t, 4)) })
}

// newHintedNode returns the node, with the daemon of a pool.
func newHintedNode(t *testing.T, vfs int) *hintedNode {
	t.Helper()
	n := &hintedNode{T: t, sys: functions.New(), held: map[string][]string{}, meanwhile: func() {}}
	n.sys.Write("devices/system/node/online", "0-1")
	n.sys.PF(0x01, "ens0", vfs, functions.Facts{"numa_node": "0"})
	n.sys.PF(0x81, "ens1", vfs, functions.Facts{"numa_node": "1"})
	n.wish = pools.Decision{Hints: true, Why: suits}
	n.known = Known{
		File: filepath.Join(t.TempDir(), "vfs.json"),
		Held: func() (map[string][]string, error) {
			n.meanwhile()
			return n.held, n.heldErr
		},
		Decide: func(listed []pools.Pool) (map[string]pools.Decision, bool) {
			n.judged = append(n.judged, len(listed[0].Devices))
			return map[string]pools.Decision{"intel.com/a": n.wish}, !n.unknown
		},
		Changed: func(_, decision string) { n.changes = append(n.changes, decision) },
	}
	n.finder = pools.Finder{Sys: n.sys.FS(), Prefix: "intel.com"}
	n.start("")
	return n
}

// start starts the daemon, again.
func (n *hintedNode) start(keys string) {
	n.Helper()
	vfs, err := FindVFs(n.finder, config(n.T, resources(`{`+keys+`"resourceName": "a"}`)), n.known, nil,
		slog.New(slog.NewTextHandler(&n.log, nil)))
	if err != nil {
		n.Fatal(err)
	}
	n.vfs = vfs
}

// want compares the hints after a decision, in the list for the kubelet and in the announcement.
func (n *hintedNode) want(hints bool, why string) {
	n.Helper()
	n.vfs.decideAgain()
	pool := n.vfs.pools["intel.com/a"]
	for _, d := range forKubelet(presentDevices(pool)) {
		if len(d.Nodes) > 0 != hints {
			n.Errorf("hints of %s: %v, want %t: %s", d.ID, d.Nodes, hints, pool.Decision)
		}
	}
	if !strings.Contains(pool.Decision, why) {
		n.Errorf("decision %q, want %q", pool.Decision, why)
	}
}

// hold sets the devices of containers in the kubelet's records.
func (n *hintedNode) hold(ids ...string) { n.held = map[string][]string{"intel.com/a": ids} }

const vfOfNode0, suits, refuses = "0000:01:00.1", "the kubelet admits them", "the kubelet rejects them"

// TestHintsFlip: hints are withdrawn while containers have devices, given only while none has one, and change
// at most once a minute. The log tells each decision once.
func TestHintsFlip(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		n.want(false, "a container may be in admission")
		<-time.After(admissionLasts)
		n.want(true, suits)
		n.vfs.noteAllocate("intel.com/a")
		n.want(false, "a container may have been admitted while the hints were given")
		n.hold(vfOfNode0)
		<-time.After(decisionLasts)
		n.want(false, "containers have devices of the pool")
		n.hold()
		n.heldErr = errors.New("no checkpoint")
		n.want(false, "the devices of containers are unknown")
		n.heldErr = nil
		n.want(true, suits)
		<-time.After(admissionLasts)
		n.vfs.noteAllocate("intel.com/a")
		n.hold(vfOfNode0)
		n.want(true, suits)
		n.wish = pools.Decision{Why: refuses}
		n.want(true, "the last change is less than a minute ago")
		<-time.After(decisionLasts)
		n.want(false, refuses)
		if told := strings.Count(n.log.String(), `msg="NUMA hints"`); told != 8 {
			n.Errorf("told %d times:\n%s", told, &n.log)
		}
		if told := len(n.changes); told != 4 || !strings.Contains(n.changes[3], refuses) {
			n.Errorf("told of %d changes: %q", told, n.changes)
		}
	})
}

// TestHintsOfGoneVFs: a VF that is gone counts as long as the kubelet counts it, like an ill one. The reset
// of a NIC does not end hints that return only when no container has a VF.
func TestHintsOfGoneVFs(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		n.hold(vfOfNode0)
		n.sys.Remove(functions.Dir(vfOfNode0))
		if err := n.vfs.scanMachine(); err != nil {
			n.Fatal(err)
		}
		n.want(false, "containers have devices of the pool")
		if slices.ContainsFunc(n.judged, func(devices int) bool { return devices != 8 }) {
			n.Errorf("judged %v devices, want 8 each time", n.judged)
		}
	})
}

// TestHintsAskForACheckpoint: while hints wait for the end of containers, the kubelet gets a list a minute,
// for which it writes its checkpoint.
func TestHintsAskForACheckpoint(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		n.hold(vfOfNode0)
		n.want(false, "containers have devices of the pool")
		for _, sent := range []bool{false, true, false, true, false} {
			_, changed := n.vfs.All()
			<-time.After(decisionLasts / 2)
			n.want(false, "containers have devices of the pool")
			select {
			case <-changed:
				if !sent {
					n.Error("a list is sent within the minute")
				}
			default:
				if sent {
					n.Error("no list is sent for a minute")
				}
			}
		}
	})
}

// TestHintsAreToldOnce: the reason against hints does not change with each container, and nor does the
// announcement of the pool, while some container has a device.
func TestHintsAreToldOnce(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		n.hold(vfOfNode0)
		for range 10 {
			n.want(false, "containers have devices of the pool")
			<-time.After(admissionLasts)
			n.want(false, "containers have devices of the pool")
			n.vfs.noteAllocate("intel.com/a")
		}
	})
}

// TestHintsOfARestart: a restarted daemon keeps the hints that containers were admitted with. Without a
// decision for the pool, as after the update of an older version, it gives none while a container has a VF.
func TestHintsOfARestart(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		<-time.After(admissionLasts)
		n.want(true, suits)
		<-time.After(decisionLasts)
		n.want(true, suits)
		n.hold(vfOfNode0)
		n.start("")
		n.want(true, suits)
		n.unknown = true
		n.start("")
		n.want(true, "the GPUs are not known yet")
		n.unknown = false
		n.start(`"excludeTopology": true, `)
		n.want(false, "")
		n.start("")
		<-time.After(time.Hour)
		n.want(false, "containers have devices of the pool")
		n.hold()
		n.want(true, suits)
		if err := os.Remove(n.known.File); err != nil {
			n.Fatal(err)
		}
		n.hold(vfOfNode0)
		n.start("")
		<-time.After(time.Hour)
		n.want(false, "containers have devices of the pool")
		n.start(`"excludeTopology": false, `)
		n.want(true, "")
	})
}

// TestHintsOfARace: a container was admitted while its hints were given, and the daemon ended before it could
// withdraw them. A later one does, however late.
func TestHintsOfARace(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		<-time.After(admissionLasts)
		n.want(true, suits)
		n.vfs.noteAllocate("intel.com/a")
		n.hold(vfOfNode0)
		<-time.After(time.Hour)
		n.start("")
		n.want(false, "")
	})
}

// TestHintsOfAnAllocateMeanwhile: a container gets a device while the daemon reads that none has one.
func TestHintsOfAnAllocateMeanwhile(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		<-time.After(admissionLasts)
		n.meanwhile = func() {
			n.vfs.noteAllocate("intel.com/a")
			<-time.After(time.Millisecond)
		}
		n.vfs.decideAgain()
		n.want(false, "a container may have been admitted while the hints were given")
	})
}

// TestHintsOfASlowDecision: a scan that hangs delays the next decision. An Allocate meanwhile does not hide
// an earlier one of a container that was in admission when the hints were given.
func TestHintsOfASlowDecision(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		<-time.After(admissionLasts)
		n.want(true, suits)
		n.vfs.noteAllocate("intel.com/a")
		<-time.After(admissionLasts)
		n.vfs.noteAllocate("intel.com/a")
		n.want(false, "a container may have been admitted while the hints were given")
	})
}

// TestHintsWithLateGPUs: without GPUs so far the last decision counts, and none at first.
func TestHintsWithLateGPUs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newHintedNode(t, 8)
		n.unknown = true
		<-time.After(time.Hour)
		n.want(false, "the GPUs are not known yet")
		n.unknown, n.wish = false, pools.Decision{Why: refuses}
		n.want(false, refuses)
		n.wish = pools.Decision{Hints: true, Why: suits}
		n.want(true, suits)
	})
}

// TestHintsAreSavedFirst: hints that cannot be saved do not change: a restart would not know of the change.
func TestHintsAreSavedFirst(t *testing.T) {
	runHinted(t, func(n *hintedNode) {
		<-time.After(time.Hour)
		file := n.vfs.known.File
		n.vfs.known.File = filepath.Join(n.TempDir(), "away", "vfs.json")
		n.want(false, "could not be saved")
		n.vfs.known.File = file
		n.want(true, suits)
	})
}
