// SPDX-License-Identifier: Apache-2.0

// Package machine converts the places of devices from a node's PCI tree to the published object and back. The
// tree built from the object contains only the devices and the bridges that they share. Placement depends on
// nothing else, so both trees give equal results, as the test shows on recorded machines.
//
// The object has the addresses of PFs only. VFs get addresses after those of the PFs of their bus, PF by PF
// and in numerical order, like real devices (PCI Express Base Specification, "VF Offset" and "VF Stride").
package machine
