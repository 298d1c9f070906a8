// SPDX-License-Identifier: Apache-2.0

// Package node is a Kubernetes node inside a Go process: the kubelet's own managers on a folder in place of
// /var/lib/kubelet, without containers, an API server or privileges. Device plugins register like with any
// kubelet.
//
//	Node.Admit ── allocation manager (one admission at a time)
//	              └─ topology manager (hints, merge, admit or refuse)
//	                 └─ device manager ── gRPC ── <dir>/device-plugins/*.sock   the plugins
//	                                   └─ checkpoint in <dir>/device-plugins
//	plugin manager on <dir>/plugins_registry, where it is wanted: it finds sockets for the device manager
//	PodResources v1 server with its rate limiter on <dir>/pod-resources/kubelet.sock
//
// Everything drawn above is the kubelet's code as k8s.io/kubernetes ships it, the random order in which it
// visits the resources of a container included, and so are the static policies of the CPU manager and the
// memory manager, where they are wanted. There are two versions of it: 1.37 is that of go.mod, and 1.36 comes
// with
//
//	go test -modfile=go.v1.36.mod -tags=kubernetes136
//
// What stands in for the rest of the kubelet is small: a table of pods for the pod manager and the pod
// workers ([pods]), and providers for PodResources that know no memory and no dynamic resources.
package node
