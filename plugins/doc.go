// SPDX-License-Identifier: Apache-2.0

// Package plugins holds Tandem's two device plugins. Package deviceplugin is the kubelet side of both, for
// any hardware; packages gpu and rdma are independent of each other and meet only in package coordination.
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
package plugins
