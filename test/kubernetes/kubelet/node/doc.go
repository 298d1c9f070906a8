// SPDX-License-Identifier: Apache-2.0

// Package node is a Kubernetes node inside a Go process: the kubelet's own managers on a folder in place of
// /var/lib/kubelet, without containers, an API server or privileges. Device plugins register like with any
// kubelet.
//
//	Node.Admit ── allocation manager (one admission at a time)
//	              └─ topology manager (hints, merge, admit or refuse)
//	                 └─ device manager ── gRPC ── <dir>/device-plugins/*.sock   the plugins
//	                                   └─ checkpoint in <dir>/device-plugins
//	plugin manager on <dir>/plugins_registry, if enabled: it finds sockets for the device manager
//	PodResources v1 server with its rate limiter on <dir>/pod-resources/kubelet.sock
//
// All parts above are the kubelet's code in k8s.io/kubernetes, including the random order of a container's
// resources; so are the static policies of the CPU manager and the memory manager, if enabled. There are two
// versions: 1.37 in go.mod, and 1.36 with
//
//	go test -modfile=go.v1.36.mod -tags=kubernetes136
//
// Only small parts replace the rest of the kubelet: a table of pods for the pod manager and the pod workers
// ([pods]), and providers for PodResources without memory and dynamic resources.
package node
