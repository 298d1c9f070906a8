// SPDX-License-Identifier: Apache-2.0

// Package plugin is the scheduler's plugin Tandem. It asks for each node what the kubelet would say to the
// pod (Filter), and how good the node's devices for it are (Score).
//
// It has no state of its own. What a node holds is in its NodeTopology object, which is made ready to be
// asked when the informer receives it. Pods that the scheduler has sent to the node since are in the
// framework's NodeInfo, those that preemption would evict are not: so the holdings of pods that are not there
// are counted out, and pods that hold nothing yet are admitted by simulation, in every order in which the
// kubelet may see them; a node for which these are too many is passed over. Verdicts are remembered as long
// as neither the object nor the NodeInfo change.
//
// Filter and the hints of the scheduler's queue have the objects from one informer ([Objects]), so that a pod
// that a hint wakes is filtered by the version that the hint spoke of, or a newer one. A hint skips no pod
// that Filter would let pass.
//
// A node writes its object as it likes. What is not valid is refused, and a panic ends at the plugin's edge;
// both leave that node out of account until it writes another version, with a line in the log, an Event of
// the Node and the metric scheduler_tandem_refused_objects.
//
// Nodes without an object, and those whose kubelet's policy is not known, are never filtered.
package plugin
