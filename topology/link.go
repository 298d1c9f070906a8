// SPDX-License-Identifier: Apache-2.0

package topology

// LinkType is the kind of a direct connection between two GPUs.
type LinkType string

// The kinds of link that placement knows.
const (
	XGMI   LinkType = "XGMI"
	NVLink LinkType = "NVLINK"
)

// Link is a direct connection between two GPUs, beside PCI Express. It holds both ways.
type Link struct {
	A, B  Address
	Type  LinkType
	Hops  int // GPUs passed on the way, the last one included: 1 for neighbours
	Count int // parallel links between the two, 1 or more
}
