// SPDX-License-Identifier: Apache-2.0

// Package oracle judges what the scheduler's allocator does with the devices that a node publishes.
//
// It knows the machine, and the rules by which GPUs and VFs are handed out; of what is published it takes
// only which VF is whose:
//
//   - A switch has more VFs than GPUs: each GPU has a VF of its own, which goes with that GPU or stays
//     where it is. The other VFs are for whoever asks for VFs alone.
//   - A switch has as many VFs as GPUs, or fewer: any GPU with any VF of the switch is a pair. Where a
//     node has more sets of them than the scheduler can go through, some pairs only are published, of
//     each VF one at least.
//   - Where devices cannot share counters, each GPU has a VF of its own as long as there are some.
//
// So what a claim could have on a switch follows from counting what is free there, and on the machine from
// adding switches up. No search through devices is in this, as the allocator's is, and no counters.
package oracle
