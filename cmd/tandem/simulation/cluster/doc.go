// SPDX-License-Identifier: Apache-2.0

// Package cluster plays jobs that come to a cluster of equal nodes and leave it again, and compares
// schedulers: who chooses the node. The kubelet is package world's, and the devices on the node are chosen in
// one of the ways of package simulation.
//
// A job is one pod with one container, or a burst of several. It comes as a Poisson process and runs for an
// exponential time, an hour on average. Where no node passes the scheduler's filter the pod waits, and is
// tried again whenever another one ends. A pod that the kubelet refuses has failed: the Job makes a new
// one after 10 s, then 20 s, and so on, and gives up after six ([Limit], the default backoffLimit of a Job).
// Schedulers know the state of every node as it is at that moment; in a real cluster what they know is older.
//
// # Schedulers
//
//	least   the default scheduler: counts alone, and the node with the largest free share (LeastAllocated)
//	most    the same, and the node with the smallest (MostAllocated: bin packing)
//	numa    NodeResourceTopologyMatch: under policy restricted it filters nothing, and scores nodes on which
//	        the free devices need the fewest NUMA nodes above all else, then as most does
//	exact   a filter that gives the kubelet's verdict, then as most does
//	tandem  tandem-scheduler: that filter, and the order of package rank
package cluster
