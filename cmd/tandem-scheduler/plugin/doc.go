// SPDX-License-Identifier: Apache-2.0

// Package plugin is the scheduler plugin Tandem. For each node it predicts the kubelet's verdict on the pod
// (Filter), and rates the node's devices for the pod (Score).
//
// The plugin has no state of its own. A node's holdings are in its NodeTopology object, which is parsed when
// the informer receives it. The framework's NodeInfo has the pods that the scheduler has sent to the node
// since, without pods that preemption would evict. So the plugin subtracts the holdings of pods absent from
// the NodeInfo, and simulates the admission of pods without holdings, in every order in which the kubelet may
// see them; it rejects a node with too many orders. Results are cached until the object or the NodeInfo
// changes, and are shared by equal nodes with the same free devices.
//
// Filter and the scheduler's queueing hints read objects from one informer ([Objects]): a pod woken by a hint
// is filtered by the hint's version of the object or a newer one. A hint skips no pod that Filter would
// accept.
//
// Each node writes its own object. The plugin refuses invalid objects and recovers from panics; either way it
// ignores the node until the node writes another version, and reports the object with a log line, an Event of
// the Node and the metric scheduler_tandem_refused_objects.
//
// Nodes without an object, and nodes with an unknown kubelet policy, are never filtered.
package plugin

// Name is the plugin's in the scheduler's configuration.
const Name = "Tandem"
