// SPDX-License-Identifier: Apache-2.0

// Package solver finds the cheapest choice on a tree of places. The input of the solver is the number of
// devices of each kind at every place and the cost of taking some of them; it does not use names of devices.
// Package placement builds the tree of a request and reads the result from it.
//
// # Algorithm
//
// The PCI tree is reduced to the places where paths of the request's devices meet: cards, groups (devices
// below one switch), bridges, root complexes, NUMA nodes. On a tree it is optimal to form every pair as low
// as possible. The number of pairs below a place therefore depends only on the numbers of GPUs and VFs taken
// below it. A table for each place holds the cheapest way for each number of GPUs, VFs and extras (devices
// with one additional partner), and the tables of sibling places combine into the table of their parent. All
// criteria of package placement except the last are sums over places; the fifth is a sum if links follow the
// tree: no links, links between all GPUs, or links within places. VF indices are assigned last, when the
// number of VFs of each PF is known: it is optimal to take one index after another, each from all PFs that
// can give it. To keep the tables small, the solver first looks for solutions with the fewest possible pairs
// beyond PIX.
//
// If links do not follow the tree (a cube mesh, MI250), criterion 5 depends on the individual GPUs. The
// solver then enumerates the sets of GPUs, with the best possible completion as a bound, and solves the pairs
// for sets within the bound.
//
// # Several resources
//
// Devices of several resources of one kind (partition types, VFs of several rails or pools) are equivalent in
// all of the above: the devices below a switch, the VFs of a PF and the remaining devices are sums over the
// resources. The number taken from each resource is fixed by the request. The tables are therefore indexed by
// the number of devices of every resource, not only by their sum, and the solver first finds, PF by PF, the
// VFs that a group can give for each such number. A part of the tree has to give at least the devices that
// the rest of the tree lacks. This keeps the tables small in the common case of a rail with one VF of each
// PF: every part gives the VFs that only this part has.
package solver
