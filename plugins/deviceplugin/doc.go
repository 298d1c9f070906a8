// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin implements the kubelet's device plugin API for any hardware: a [Resource] describes
// the devices, and [Server] serves them.
//
//	Run ─┬─ Resource.Watch ──▶ broadcast ──▶ every ListAndWatch stream gets the current list
//	     ├─ stayRetiring: removes gone devices from the list when the kubelet does not need them
//	     ├─ folder: a change in device-plugins/ triggers the checks
//	     └─ stayRegistered: wait for kubelet.sock ─▶ new socket ─▶ serve ─▶ Register ─▶ attend
//	                         ▲                                                            │
//	                         └── pause, 100 ms to 30 s; none for a new kubelet.sock ◀─────┘
//
// The function attend returns when the stream has ended, kubelet.sock is new, the plugin's own socket is
// gone, or another plugin has taken over and is gone (guard.go).
//
// If the kubelet's plugin watcher finds the plugin (folder.go), the server does not wait for kubelet.sock:
// it serves the new socket in plugins_registry, and the kubelet connects when it starts.
//
// Three rules protect the kubelet and its pods. A listed device stays listed, as unhealthy, until the kubelet
// does not need it: from 1.34 on the kubelet crashes if a device vanishes while a container holds it
// (Keep in resource.go). GetPreferredAllocation never fails and takes at most 100 ms, because
// an error fails the pod and a delay stops all pod starts of the node (prefer.go). A socket name is never
// reused, because a kubelet from 1.37 on never forgets a name whose registration failed (folder.go).
package deviceplugin
