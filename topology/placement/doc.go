// SPDX-License-Identifier: Apache-2.0

// Package placement chooses a container's GPUs and VFs together. [Choose] is a pure function of the PCI tree,
// the free devices, the held devices and the requested numbers. It has no clock, no logger and no state, and
// the order of its input lists has no meaning: the same input gives the same answer.
//
// # The objective
//
// Of all ways to take the requested numbers of GPUs and VFs, and to pair them, Choose takes the best by the
// following criteria. Each criterion applies among choices that are equal by all previous criteria.
//
//  1. Pairs. Their number is the size of the larger half. Each device of the larger half is in one pair; the
//     devices of the smaller half have equal shares, which differ by one if the division has a remainder.
//     More PIX pairs are better, then more PXB, C2C, PHB, NODE and SYS pairs, then fewer pairs of switches
//     that redirect, then fewer bridges crossed in total. (For a device of unknown location only the
//     bridges above the other device count.) A switch redirects if a port between the switch and a device of
//     the request forwards upstream traffic to the host bridge (ACS; [topology.Tree.Redirected]): its pairs
//     are PIX, but slower than those of other switches. All pairs of a switch count alike, also if some NICs
//     send translated requests (ATS), which take no detour; the reason of a choice counts single pairs.
//  2. Good devices. As few devices as possible are degraded: by their state (Device.Degraded), a PF by a
//     PCIe link below its maximum, a GPU by a link with fewer lanes than its maximum.
//  3. Pairs left. The number of possible same-switch pairs among the remaining free devices is maximal: the
//     sum over all switches (for devices without a switch, C2C complexes and root complexes) of
//     min(free GPUs, free VFs). A GPU-only request therefore takes GPUs whose switch has no free VF. Free
//     devices that the request may not choose from (Spare) count as well.
//  4. Pairs later, when other containers (Taken) have ended. The sum over all switches of min(free GPUs, all
//     VFs), min(all GPUs, free VFs) and min(GPUs, VFs), without the devices of this container, is maximal. A
//     container without VFs therefore takes neither the last GPU of a switch nor a GPU that leaves a VF
//     without a partner for the container's lifetime, if it can take another. This gives more pairs in the
//     long run than the best single step.
//  5. GPU to GPU. Links come first: the sum over all pairs of the chosen GPUs of 0 on one card; over a direct
//     link 100 for each hop (at most 9) less one for each parallel link; without a link 1000. A missing link
//     is therefore worse than any link. PCI Express comes second, in the same way: 100 for each level of the
//     ladder beyond PIX, less one for each shared bridge between PIX and PHB. GPUs with equal links are
//     therefore taken from one switch, root complex or NUMA node.
//  6. Separate PFs. The number of pairs of the request's VFs that share a PF is minimal, then the number of
//     those that share a NIC: the ports of a NIC share its PCIe link.
//  7. Whole GPUs. Places stay whole for requests that need whole places: the sum of (free partitions)² over
//     cards, then of (free GPUs)² over switches, then over NUMA nodes is maximal.
//  8. Spread VFs. Each VF costs the number of VFs of its PF that other containers hold. Then the sum of
//     (free VFs)² over switches is minimal: VFs are taken from switches with most free VFs, so that no switch
//     runs out of VFs while its GPUs are in use.
//  9. The lowest place. From the root of the tree down, level by level, as few devices as possible are taken
//     from the places with the highest addresses: fewer GPUs, then fewer VFs, then fewer of the resource with
//     the lowest device, then of the next. On one card the lowest devices are taken.
//  10. VF index. If VFs come from several PFs, the index (virtfn0, virtfn1 …) that occurs on most of them is
//     on as many as possible, then that index is the lowest, then the same for the index on the next most
//     PFs, including held VFs. Rails and planes that are built by VF index therefore stay together (NCCL
//     issue 2244), without any cost: the number of VFs of each PF is already decided.
//
// This order gives the best results in "tandem-lab simulate". Pairs left are the pairs of future containers:
// they come before GPU locality, which they reduce slightly if VFs are few and not at all if there are
// enough. GPU locality comes before separate PFs: if two GPUs share a switch and a PF, the criteria exclude
// each other.
//
// # An example
//
// Three switches of an MI300X node, with two, one and no free VFs; another container holds a VF of the second
// PF:
//
//	GPU 0000:11:00.0   PF 0000:0c:00.0   VFs 0000:0c:00.1, 0000:0c:00.2
//	GPU 0000:2f:00.0   PF 0000:2a:00.0   VF  0000:2a:00.2
//	GPU 0000:46:00.0   PF 0000:41:00.0   -
//
//	1 GPU            0000:46, the only GPU without loss of a pair (3), although 0000:11 is lower (9)
//	1 GPU  + 1 VF    0000:11 with 0000:0c:00.1: PIX, as 0000:2f with 0000:2a:00.2 would be (1), on a PF
//	                 with less load (8)
//	2 GPUs + 2 VFs   0000:11 and 0000:2f, each with a VF of its switch: two VFs of 0000:0c would leave one GPU
//	                 without a VF. The VF is 0000:0c:00.2, because 0000:2a has no 00.1 (10)
//	2 GPUs + 3 VFs   the same GPUs: 0000:11 is paired with both VFs of 0000:0c, and all three pairs are PIX
//	3 GPUs + 3 VFs   two pairs are PIX; 0000:46 gets the other VF of 0000:0c, across root complexes (NODE)
//
// An algorithm that chooses the GPUs first fails here: GPUs that are near each other or low are not those
// with VFs. Package solver describes how the best choice is found.
//
// # Bounds
//
// The answer is optimal, and [Choice.Optimal] is true, unless the search needs more than [solver.MaxSteps]
// steps, or there are more than [solver.MaxCards] cards with irregular links. Requests of any size on 8 GPUs
// and 64 VFs, 16 GPUs and 128 VFs, or 64 partitions and 64 VFs are within the bounds, and so are requests of
// up to 256 of each on 1024 GPUs and 8192 VFs. With irregular links the halves of a request on more than 8
// GPUs must not be too unequal. Several resources are within the bounds if few places have devices of one
// resource, or if the request has few devices of each.
//
// Beyond the bounds the answer is well formed but not proven: extras follow the VFs instead of being tried in
// all numbers, in the last resort switches are filled one after another, and with irregular links the search
// ends with the step limit. Several resources are chosen one after another. The pairs of the chosen devices
// are optimal in all cases.
//
// The package assumes a regular tree: a root complex has one NUMA node, the lowest known one of the
// devices' places ([topology.Tree.NUMA]), and a GPU and a PF in one slot count as neighbours on one switch.
// The GPUs of a C2C complex are on different host bridges, which they share with no NIC outside the complex:
// such a NIC counts as NODE.
package placement
