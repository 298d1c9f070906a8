// SPDX-License-Identifier: Apache-2.0

// Package simulate simulates random containers that arrive at a node and leave, and compares ways of
// choosing their GPUs and VFs.
//
// Containers arrive as a Poisson process and stay for exponential times. Their requests are drawn from a
// [Mix]. Containers that do not fit by numbers, or that the kubelet refuses, are lost. The rate of
// arrivals is set so that the stock plugins allocate a given share of the GPUs on average; all ways of
// choosing get the same arrivals, so that figures are comparable seed by seed.
//
// # The node
//
// [State.Admit] admits like the kubelet (package devicemanager), one resource after the other
// in random order; the way of choosing answers each [Question]. A short answer is filled up at random.
// Containers have one resource of each kind; CPUs and memory are ignored.
//
// # Ways of choosing
//
//	stock           GPUs by the vendor's policy (machine.Vendor), VFs in list order: the stock plugins
//	tandem-unknown  package placement, called like the coordinator without the pod's spec: it expects the
//	                other half to have the same size
//	tandem          package placement, with the whole request known
//	joint           the optimum for one container at a time (joint.go): most pairs, then most possible
//	                pairs left
//
// The ways tandem and tandem-unknown make the same calls to the same package as the real coordinator. Unlike
// the coordinator, which may have to infer the container, the simulation always knows the container.
//
// # Results
//
// A [Report] depends on the [Config] alone, not on the number of processors. Its figures are means
// over seeds with 95 % confidence intervals, as documented in [Figures]. It can be written as a table
// and as JSON.
package simulate
