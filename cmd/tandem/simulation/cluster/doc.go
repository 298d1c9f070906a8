// SPDX-License-Identifier: Apache-2.0

// Package cluster simulates jobs on a cluster of equal nodes, and compares schedulers by their choice of
// nodes. The kubelet is that of package world; the devices on a node are chosen in one of the ways of package
// simulation.
//
// A job is one pod with one container, or a burst of several. Jobs arrive as a Poisson process and run for an
// exponential time, an hour on average. If no node passes the scheduler's filter, the pod waits, and is
// retried whenever another pod ends. A pod that the kubelet refuses has failed: the Job creates a new one
// after 10 s, then 20 s, and so on, and gives up after six ([Limit], the default backoffLimit of a Job).
// Schedulers know the current state of every node; in a real cluster their state is older.
//
// # Schedulers
//
//	least   the default scheduler: counts alone, and the node with the largest free share (LeastAllocated)
//	most    the same, and the node with the smallest (MostAllocated: bin packing)
//	numa    NodeResourceTopologyMatch: under policy restricted it filters nothing, and scores nodes on which
//	        the free devices need the fewest NUMA nodes above all else, then like most
//	exact   a filter with the kubelet's verdict, then like most
//	tandem  tandem-scheduler: the same filter, and the order of package rank
package cluster
