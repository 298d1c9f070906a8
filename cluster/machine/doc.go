// SPDX-License-Identifier: Apache-2.0

// Package machine translates where devices are, from a node's PCI tree to the published object and back. The
// tree that is made of the object has no more than the devices and the bridges that they share, and that is
// all that placement looks at: for it the two trees are the same, which the test shows on recorded machines.
//
// VFs get addresses behind those of the PFs of their bus, PF by PF and in the order of their numbers, as
// devices have them (PCI Express Base Specification, "VF Offset" and "VF Stride"): the object has those of
// the PFs alone.
package machine
