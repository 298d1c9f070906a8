// SPDX-License-Identifier: Apache-2.0

package topologymanager

import (
	"math/bits"

	"github.com/tandem-k8s/tandem/topology"
)

// set is a set of NUMA nodes, a bit for each.
type set uint64

// setOf returns the nodes of devices.
func setOf(devices []topology.NUMANode) (s set) {
	for _, d := range devices {
		if n, known := d.Number(); known {
			s |= 1 << n
		}
	}
	return s
}

// known returns the number of devices with a node.
func known(devices []topology.NUMANode) int { return (^set(0)).has(devices) }

// has returns the number of devices on the nodes.
func (s set) has(devices []topology.NUMANode) (count int) {
	for _, d := range devices {
		if n, known := d.Number(); known && s>>n&1 == 1 {
			count++
		}
	}
	return count
}

func (s set) count() int { return bits.OnesCount64(uint64(s)) }

// numbers lists the nodes, ascending; nil for none.
func (s set) numbers() (list []int) {
	for n := range 64 {
		if s>>n&1 == 1 {
			list = append(list, n)
		}
	}
	return list
}
