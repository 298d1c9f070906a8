// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a node and says what stands between it and pods whose GPUs and VFs share a switch:
// what it saw, why it matters and how it is put right. It changes nothing; [Fix] and [RollBack] write and
// remove one file of Tandem's own in the kubelet's folder of drop-ins.
//
// A [Node] is where to look, an [Examine] goes through the checks. Those of the kubelet's settings are a
// table of functions from facts to findings: the refusals, with which the kubelet does not start and which
// [Fix] therefore asks too, and advice. Facts about the machine come from the tree, settings from files and
// flags (package settings), what the kubelet does from the files and sockets below its folder. The verdict
// about request shapes is the Topology Manager's own rule, [hints.Policy.Nodes], with a third demand for the
// CPUs of a guaranteed pod.
//
// A healthy node has no finding. What cannot be read is a finding of its own ([Unknown]) only where it was to
// be expected. What may not be read is neither damaged nor missing: it is all in one finding, and no fix
// follows from it.
package doctor
