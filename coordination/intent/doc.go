// SPDX-License-Identifier: Apache-2.0

// Package intent knows what the pods of this node ask for: their names, and how many devices of which
// resource each of their containers wants, before the kubelet has admitted them. The kubelet does not say so
// when it asks a device plugin.
//
// # Sources
//
// There are several, best first; which are looked at is the node's owner's choice (--intent):
//
//	pods-api      the kubelet's Pods API socket, kubelet 1.37 and later. Full, no lag, no right needed beyond
//	              its folder. Default.
//	kubelet       GET /pods of the kubelet's HTTPS server. The same, on every version. It needs a token with
//	              the right to get nodes/pods (before Kubernetes 1.33 nodes/proxy, which also lets its bearer
//	              run commands in every container: think twice).
//	api-server    a watch on the pods of this node. It can be behind the kubelet by as long as an event takes.
//	              It needs the right to list and watch pods, of all nodes as far as Kubernetes can say, and a
//	              connection and memory for every node.
//	podresources  PodResources List: who holds the devices of a container's first half, and which pods there
//	              are. It tells nothing of a request. Default.
//
// Without any of them the order and the time of the questions remain ([Inference]).
//
// The default is what costs nothing and needs no right: pods-api and podresources. A source that fails is
// left alone for a while, longer each time ([Sources.Pods]), and the next best one is asked. Every decision
// says which was used.
//
// # Kubernetes' types stay here
//
// Pods are reduced to what decides ([Pod]) as soon as they are read.
package intent
