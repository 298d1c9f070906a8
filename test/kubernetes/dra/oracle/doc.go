// SPDX-License-Identifier: Apache-2.0

// Package oracle judges the scheduler's allocations of a node's published devices.
//
// It uses the machine, and the rules for the assignment of GPUs and VFs; of the published devices it uses
// only the VFs that belong to each GPU:
//
//   - A switch has more VFs than GPUs: each GPU has a VF of its own, which is allocated with that GPU
//     or not at all. The other VFs are for claims of VFs alone.
//   - A switch has as many VFs as GPUs, or fewer: any GPU with any VF of the switch is a pair. If a
//     node has more sets of pairs than the scheduler can search, only some pairs are published, with
//     each VF in at least one.
//   - Without shared counters, each GPU has a VF of its own as long as VFs remain.
//
// So the possible allocations on a switch follow from counts of its free devices, and those of the machine
// from sums over switches. Unlike the allocator, the oracle neither searches through devices nor uses
// counters.
package oracle
