// SPDX-License-Identifier: Apache-2.0

// Package plugins holds Tandem's two device plugins. Package deviceplugin is the kubelet side of both and
// knows no hardware; packages gpu and rdma know their hardware and nothing of each other. They meet in
// package coordination alone.
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
// The kubelet skips GetPreferredAllocation when there is nothing to choose, and may not follow it up with
// Allocate; the coordinator learns from Allocate in the first case and lets the plan expire in the second. An
// error of either call makes the pod fail for good, so neither returns one that can be avoided:
// GetPreferredAllocation none at all.
//
// # When the kubelet goes
//
// Its restart removes our socket and creates kubelet.sock anew; its view of us also ends when it, or another
// instance of the same plugin, ends our ListAndWatch stream. In each case deviceplugin.Server opens a new
// socket under a new name and registers again. Containers that run keep their devices: the kubelet replays
// the answer that Allocate once gave.
package plugins
