// Package placement chooses a container's GPUs and VFs together: [Choose] is a pure function of the PCI tree,
// what is free, what is held already and how much is wanted. It has no clock, no logger and no state, and the
// order of its lists means nothing: the same question has the same answer.
//
// # The objective
//
// Of all ways to take the wanted numbers of GPUs and VFs, and to pair them, the best is chosen by these
// criteria. A later one counts only where all earlier ones are equal.
//
//  1. Pairs. There are as many as the larger half asks for. Each device of the larger half is in one of them;
//     those of the smaller half have equal shares, differing by one where it does not divide. More PIX pairs
//     are better, then more PXB, PHB, NODE and SYS pairs, then fewer PIX and PXB pairs of switches that
//     redirect, then fewer bridges crossed by all of them. (To a device of unknown place only the bridges
//     above the other one count.) A switch redirects where a port between it and a device of the request
//     sends what comes up on to the host bridge (ACS; [topology.Tree.Redirected]): its pairs are PIX, but not
//     as fast as those of another.
//  2. Pairs left. As many as possible same-switch pairs of free devices stay: the sum over all switches (for
//     devices without one, root complexes) of min(free GPUs, free VFs). This is what makes a GPU-only request
//     take GPUs whose switch has no VF left. Free devices that the request may not choose from (Spare) count
//     as well.
//  3. Pairs later, when other containers are gone (Taken). The sum over all switches of min(free GPUs, all
//     VFs), min(all GPUs, free VFs) and min(GPUs, VFs) without those of this container is to be large. So a
//     container without VFs takes neither the last GPU of a switch nor one that it leaves without a partner
//     for as long as it lives, if it can take another: bystanders go where they harm nobody. This is what
//     makes more pairs in the long run than choosing the best step by step.
//  4. GPU to GPU. First the links, the sum over all pairs of the chosen GPUs of: 0 on one card; over a direct
//     link 100 for each hop (9 at most) less one for each parallel link; without one 1000. A missing link is
//     therefore worse than any link. Then PCI Express, in the same way: 100 for each level of the ladder
//     beyond PIX, less one for each shared bridge between PIX and PHB. So GPUs that are all linked alike are
//     taken from one switch, root complex or NUMA node.
//  5. PFs of their own. As few pairs as possible of the request's VFs share a PF.
//  6. Whole GPUs. Places stay whole for those who need them so: the sum of (free partitions)² over cards,
//     then of (free GPUs)² over switches, then over NUMA nodes is to be large.
//  7. VFs spread out. Every VF costs as many as other containers have of its PF, a degraded link counting as
//     one more. Then the sum of (free VFs)² over switches is to be small: VFs are taken where most are left,
//     so that no switch runs out of them while its GPUs are in use.
//  8. The lowest place. From the root of the tree down, level by level, the least is taken from the places
//     with the highest addresses: fewer GPUs, then fewer VFs, then fewer of the resource with the lowest
//     device, then of the next. On one card the lowest devices are taken.
//  9. VF index. Where VFs come from several PFs, the index (virtfn0, virtfn1 …) that is on the most of them
//     is on as many as can be, then that index is the lowest, then so for the index on the next most PFs,
//     held VFs counted in. Rails and planes that are made by VF index stay together thus (NCCL issue 2244),
//     at no cost: how many VFs each PF gives was decided before.
//
// The order is the one that does best in "tandem simulate". Pairs left are the pairs of containers to come:
// they come before near GPUs, which they cost some nearness where VFs are few and nothing where there are
// enough. Near GPUs come before PFs of their own: where two GPUs share a switch and a PF, one excludes the
// other.
//
// # An example
//
// Three switches of an MI300X node, with two, one and no VFs left; the second PF has a VF of another
// container:
//
//	GPU 0000:11:00.0   PF 0000:0c:00.0   VFs 0000:0c:00.1, 0000:0c:00.2
//	GPU 0000:2f:00.0   PF 0000:2a:00.0   VF  0000:2a:00.2
//	GPU 0000:46:00.0   PF 0000:41:00.0   -
//
//	1 GPU            0000:46 alone loses no pair (2), though 0000:11 is lower (8)
//	1 GPU  + 1 VF    0000:11 with 0000:0c:00.1: PIX as 0000:2f with 0000:2a:00.2 would be (1), on a PF with
//	                 less load (7)
//	2 GPUs + 2 VFs   0000:11 and 0000:2f, each with a VF beside it: two VFs of 0000:0c would leave one GPU
//	                 without. It is 0000:0c:00.2 there, as 0000:2a has no 00.1 (9)
//	2 GPUs + 3 VFs   the same GPUs: 0000:11 serves both VFs of 0000:0c, and all three pairs are PIX
//	3 GPUs + 3 VFs   two pairs are PIX; 0000:46 gets the other VF of 0000:0c, over the root complexes (NODE)
//
// A choice of GPUs first, of whatever kind, fails here: GPUs that are near each other or low are not those
// with VFs. How the best is found is told in the package solver.
//
// # Bounds
//
// The answer is the best there is, and [Choice.Optimal] says so, unless that takes more than
// [solver.MaxSteps] steps, or there are more than [solver.MaxCards] cards with irregular links. Requests of
// any size on 8 GPUs and 64 VFs, 16 GPUs and 128 VFs, or 64 partitions and 64 VFs lie within, as do up to 256
// of each on 1024 GPUs and 8192 VFs. With irregular links the halves of a request on more than 8 GPUs must
// not be too unequal. Several resources lie within where few places have any of a resource, or few devices of
// each are asked for.
//
// Past the bounds the answer is well formed but not proven: extras follow the VFs instead of being tried in
// all numbers, in the last resort switches are filled one after the other, and of irregular links as many
// sets are looked at as there is time for. Several resources are settled one after the other. The pairs of
// what is chosen are the best ones all the same.
//
// The tree is taken to be one. A root complex has one NUMA node, that of its first device that knows its own;
// a GPU and a PF in one slot count as neighbours on one switch.
package placement
