// Package solver finds the cheapest choice on a tree of places. It knows how many devices of each kind every
// place has to give and what it costs to take some of them, and no device by name. The package placement
// makes the tree of a request, and reads from it what was chosen.
//
// # How the best is found
//
// The PCI tree is reduced to the places where the devices of the request can meet: cards, groups (what hangs
// on one switch), bridges, root complexes, NUMA nodes. On a tree it is best to make every pair as low as
// possible, so how many pairs are made below a place depends on how many GPUs and VFs are taken below it, and
// not on which. A table per place therefore holds the cheapest way for each number of GPUs, VFs and extras
// (devices with one partner more), and tables of neighbouring places combine into that of the place above.
// All criteria of the package placement but the last are sums over places, the fourth where links follow the
// tree: none, from all to all, or within places. VF indices are looked at last, there, when it is known how
// many VFs each PF gives: taking index after index, each from all PFs that can give it, is best. To keep
// tables small, solutions with the fewest conceivable pairs beyond PIX are looked for first.
//
// Where links follow no order of the tree (a cube mesh, MI250), criterion 4 depends on the very set. Then the
// sets are gone through, with the nearest conceivable completion as a bound and the pairs solved for those
// that pass.
//
// # Several resources
//
// GPUs, or VFs, of several resources (partitions of several kinds, VFs of several rails or pools) count as
// GPUs and VFs alike in all of the above: what hangs on a switch, what a PF gives and what is left are sums
// over the resources. But from each resource as many are taken as are asked of it. So the tables are kept for
// each number of devices of every resource, not for their sum alone, and the VFs that a group can give for
// each such number are found first, PF by PF. A part of the tree has to give at least what the rest does not
// have. That keeps the tables small in the common case, a rail with one VF of each PF: every part gives the
// VFs that only it has.
package solver
