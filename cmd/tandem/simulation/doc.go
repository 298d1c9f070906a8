// SPDX-License-Identifier: Apache-2.0

// Package simulation plays random containers that come to a node and leave it again, and compares ways of
// choosing their GPUs and VFs.
//
// Containers arrive as a Poisson process and stay for exponential times. What each asks for is drawn from a
// [world.Mix]. One that does not fit by numbers, or that the kubelet refuses, is lost. The rate of arrivals
// is set so that with the stock pair of plugins a given share of the GPUs is allocated on average; all ways
// of choosing then get the same arrivals, so that their figures can be compared seed by seed. The node, and
// the kubelet that admits containers to it, are package world.
//
// # Ways of choosing
//
//	stock           GPUs by the vendor's policy (package locality), VFs as they come: the plugins as they are
//	follow          who is asked first chooses as stock does, who is asked second takes the same switches
//	tandem-unknown  package placement, asked as the coordinator does when it cannot read the pod: the other
//	                half will be of the same size
//	tandem          package placement, with the whole request known
//	joint           the best there is for one container at a time (joint.go): most pairs, then most pairs left
//	                to be made
//	keep            the same, and partners are kept for what will come back
//	ahead           the best there is in the long run (outlook.go), when it is known how often
//	                containers come and go, but not when
//	whole-node      joint on all NUMA nodes at once, with no kubelet to refuse: what a scheduler could do
//
// tandem and the real coordinator ask the same package the same questions. Unlike the coordinator, which may
// have to infer who is asking, the simulation always knows.
//
// # What can be reached
//
// Where the kubelet decides by numbers alone who comes to which NUMA node, no choice changes who is admitted,
// and two limits can be worked out for NUMA nodes with few devices, as those with one VF on each PF.
// [report.Load.Bound] is what a choice could reach that knows when every container will come and go: it is
// found by going through all ways of holding the devices along the very arrivals. The way called ahead is the
// best of those that do not know: the best plan of the Markov decision process that one NUMA node is. Where
// it is no better than joint, looking ahead is of no use.
//
// # Results
//
// A [report.Report] depends on the [Config] alone, not on the number of processors. Its figures are means
// over seeds with 95 % confidence intervals; [report.Figures] says what they count. It is written as a table,
// as JSON and as a chart.
package simulation
