// SPDX-License-Identifier: Apache-2.0

// Package intent reads the requests of this node's pods: the names of the pods, and the number of devices of
// each resource for each container, before the kubelet admits the pods. The kubelet's calls to a device
// plugin do not contain the request.
//
// # Sources
//
// The administrator selects among several sources (--intent), best first:
//
//	pods-api      the kubelet's Pods API socket, kubelet 1.37 and later. Complete and current; needs no
//	              permission except access to the socket's folder. Default.
//	kubelet       GET /pods of the kubelet's HTTPS server. The same data, on every version. Needs a token with
//	              permission to get nodes/pods (before Kubernetes 1.33 nodes/proxy, a permission that also
//	              allows to run commands in every container: think twice).
//	api-server    a watch on the pods of this node. Lags behind the kubelet by the delay of events. Needs
//	              permission to list and watch pods, which Kubernetes cannot limit to a node, and a connection
//	              and memory for every node.
//	podresources  PodResources List: the existing pods, and the devices of a container's first half. Contains
//	              no requests. Default.
//
// Without any source the order and the time of the questions remain ([Inference]).
//
// The default sources, pods-api and podresources, cost nothing and need no permission. After a failure a
// source is skipped for a pause, longer each time ([Sources.Pods]), and the next best source answers. Every
// decision names the source.
//
// # Kubernetes' types stay here
//
// Pods are reduced to the relevant fields ([Pod]) immediately.
package intent
