// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Most is the maximum number of decisions in a log: at least 64 admissions of two containers with two
// resources each, and more than the containers of a node (maxPods of the kubelet is 110).
const Most = 256

// MostBytes is the approximate maximum memory of a log. On most nodes, 256 decisions use a tenth. Above the
// limit, the oldest decisions lose the results of single switches.
const MostBytes = 16 << 20

// evict removes the oldest of the first n decisions whose container no longer exists. If all of these
// containers exist, evict removes the oldest decision.
func (d *Log) evict(n int) {
	d.remove(max(0, slices.IndexFunc(d.entries[:n], func(e *Decision) bool { return !d.holdsDevices(e) })))
}

// fit shortens, then removes decisions until the log meets MostBytes or only the newest is left.
func (d *Log) fit() {
	for i := 0; len(d.entries) > 1 && d.bytes() > MostBytes; i++ {
		if last := len(d.entries) - 1; i < last {
			d.entries[i].shorten()
		} else {
			d.evict(last)
		}
	}
}

// bytes returns the approximate size of the log. Successive decisions may share a tree, which counts once.
func (d *Log) bytes() int {
	n := 0
	var tree *topology.Tree
	for _, e := range d.entries {
		n += e.cost
		if e.Tree != nil && e.Tree != tree {
			tree = e.Tree
			n += e.treeCost
		}
	}
	return n
}

// treeCost returns the approximate size of the tree of a decision.
func (d *Log) treeCost(e *Decision) int {
	if n := len(d.entries); n > 0 && d.entries[n-1].Tree == e.Tree {
		return d.entries[n-1].treeCost
	}
	n := 0
	if e.Tree != nil {
		for range e.Tree.Devices() {
			n += treeDeviceBytes
		}
	}
	return n
}

// shorten drops the input of the choice. The results of single switches are lost.
func (e *Decision) shorten() {
	if e.shortened {
		return
	}
	m := e.encode(false)
	e.message = func() *api.Decision { return m }
	e.Tree, e.Request, e.Choice, e.compact = nil, placement.Request{}, placement.Choice{}, nil
	e.shortened, e.cost = true, encodedBytes(m)
}

// remove removes the i-th decision.
func (d *Log) remove(i int) {
	if first, ok := d.entries[i].firstDevice(); ok && d.newest[first] == d.entries[i] {
		delete(d.newest, first)
	}
	d.entries = slices.Delete(d.entries, i, i+1)
}

// Sizes in memory, in bytes.
const (
	deviceBytes   = int(unsafe.Sizeof(placement.Device{}))
	functionBytes = int(unsafe.Sizeof(functionCount{}))
	halfBytes     = int(unsafe.Sizeof(compactHalf{}))
	pairBytes     = int(unsafe.Sizeof(placement.Pair{}))
	linkBytes     = int(unsafe.Sizeof(topology.Link{}))
	stringBytes   = int(unsafe.Sizeof(""))
	// a device of a tree, with its share of the maps
	treeDeviceBytes = 1 << 10
	// a decision, its copy and its message, without lists
	decisionBytes = 4 << 10
)

// bytes returns the approximate size of a decision without its tree.
func (e *Decision) bytes() int {
	n := decisionBytes + stringsBytes(e.MustInclude) + stringsBytes(e.Chosen) + stringsBytes(e.Allocated)
	for _, ids := range e.Planned {
		n += stringsBytes(ids)
	}
	n += devicesBytes(e.Choice.GPUs) + devicesBytes(e.Choice.VFs) + 2*len(e.Choice.Pairs)*pairBytes
	n += len(e.Request.Links) * linkBytes
	for _, h := range slices.Concat(e.Request.GPUs, e.Request.VFs) {
		n += devicesBytes(h.Held) + devicesBytes(h.Free)
	}
	for _, d := range []placement.Devices{e.Request.Spare, e.Request.Taken} {
		n += devicesBytes(d.GPUs) + devicesBytes(d.VFs)
	}
	if e.compact != nil {
		n += len(e.compact.links)*linkBytes + e.compact.gpus.bytes() + e.compact.vfs.bytes()
	}
	return n
}

func (s *compactKind) bytes() int {
	n := (len(s.spare) + len(s.taken)) * functionBytes
	for _, h := range s.halves {
		n += halfBytes + devicesBytes(h.held) + devicesBytes(h.chosen) + len(h.others)*functionBytes
	}
	return n
}

// devicesBytes includes the IDs, because the list may hold their last references.
func devicesBytes(devices []placement.Device) int {
	n := len(devices) * deviceBytes
	for _, d := range devices {
		n += len(d.ID)
	}
	return n
}

func stringsBytes(list []string) int {
	n := len(list) * stringBytes
	for _, s := range list {
		n += len(s)
	}
	return n
}

// encodedBytes returns the approximate size of a decision of which only the message is kept.
func encodedBytes(m *api.Decision) int { return decisionBytes + 4*proto.Size(m) }
