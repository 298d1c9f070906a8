// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin implements the kubelet's device plugin API for any hardware: a [Resource] describes
// the devices, and [Server] serves them. Packages gpu and rdma are resources, independent of each other, and
// meet only in package coordination.
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
//
// # The life of an allocation
//
// A container asks for two GPUs and two VFs. The kubelet visits the two resources in random order, one after
// the other; here the GPUs come first.
//
//	kubelet                deviceplugin.Server        gpu.Plugin, rdma.Plugin        coordination
//	   │                            │                            │                          │
//	   │                            │ ◀── publish(devices) ───── │ ──── Member.Publish ───▶ │ once, and on
//	   │ ◀────── Register ───────── │                            │                          │ every change
//	   │ ── ListAndWatch ─────────▶ │                            │                          │
//	   │ ◀─ devices, sorted by ID ─ │                            │                          │
//	   ┆                            ┆                            ┆                          ┆
//	   │ ── GetPreferred- ────────▶ │ ── Prefer, 100 ms ───────▶ │ ──── Member.Prefer ────▶ │ which pod? what
//	   │    Allocation: 2 of 8 GPUs │                            │                          │ is free? choose
//	   │ ◀─ two GPUs, always ────── │ ◀───────────────────────── │ ◀─── two GPUs ────────── │ GPUs and VFs;
//	   │                            │    repaired when wrong     │                          │ keep the VFs as
//	   │                            │    or late                 │                          │ a plan
//	   │ ── Allocate: two GPUs ───▶ │ ── Allocate ─────────────▶ │ ──── Member.Allocated ─▶ │ who has what
//	   │ ◀─ device nodes ────────── │ ◀── answer, in order ───── │ ◀─── their order ─────── │
//	   ┆                            ┆                            ┆                          ┆
//	   │ ── the same two calls for the VFs ────────────────────▶ │ ────────────────────────▶│ the plan: a VF on
//	   │ ◀────────────────────────────────────────────────────── │ ◀────────────────────────│ each GPU's switch
//	   ┆                            ┆                            ┆                          ┆
//	   │    the pod ends: the kubelet tells nobody. The devices are free once it offers them again (Prefer), or
//	   │    PodResources no longer shows them.
//
// The kubelet skips GetPreferredAllocation if there is nothing to choose, and may not follow
// GetPreferredAllocation with Allocate: the coordinator learns the devices from Allocate in the first case,
// and lets the plan expire in the second. An error of either call makes the pod fail permanently, so
// GetPreferredAllocation returns none, and Allocate only unavoidable ones.
//
// # When the kubelet restarts
//
// A restart removes the plugin's socket and recreates kubelet.sock. The kubelet also drops a plugin when the
// ListAndWatch stream ends, by the kubelet or by another instance of the same plugin. In each case
// deviceplugin.Server opens a new socket under a new name and registers again. Running containers keep their
// devices: the kubelet keeps the answers of Allocate in its checkpoint.
package deviceplugin
