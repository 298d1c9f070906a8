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
//	podresources  PodResources List: the existing pods, and the devices of a container's first half. Contains
//	              no requests. Default.
//
// The API server is no source: it lags behind the kubelet, its list needs rights over all nodes, and its
// fields are the pod author's. The name api-server is accepted with a warning.
//
// Without any source the order and the time of the questions remain ([Inference]).
//
// The default sources, pods-api and podresources, cost nothing and need no permission. After a failure that
// has cost time a source is skipped for a pause, longer each time ([Sources.Pods]), and the next best source
// answers. Every decision names the source.
//
// # Sizes
//
// A pod's author decides on the size of the list. Each pod is reduced at once to the containers that request
// devices ([Pod]); a pod that has not changed since the last list is not decoded again. One list is read at a
// time. Of a list that is larger than kubelet.MaxPods, or has more requests than can be kept, nothing is
// known: the [Enforcement] says so.
package intent
