// SPDX-License-Identifier: Apache-2.0

// Package simulation runs a whole node in one process, under a virtual clock (testing/synctest), driven by
// one seed: both device plugins with the kubelet's side, coordination with its election, and the model of the
// kubelet (package model). A seed repeats itself to the byte.
//
//	model.Kubelet ── Prefer, Allocate ──▶ deviceplugin.Server ──▶ gpu.Plugin, rdma.Plugin ──▶ hardware
//	      │                                                              │
//	      ├── checkpoint, PodResources, pods ──▶ coordinator ◀── network ┘ (gRPC in memory)
//	      │                                           └── files of a run directory
//	      └── publication ──▶ NodeTopology ──▶ the scheduler's verdict
//
// Product code runs unchanged. The simulation passes in what reaches out of the process: the coordination
// socket, PodResources, the readers of pods, the PCI tree and the kubelet's connection. Files and the lock
// are real.
//
// Storms alternate with calms. In a storm calls are late, lost, doubled or cut off, reads fail, plugins and
// the kubelet are killed, and hardware vanishes. In every weather a device has one owner, an answer obeys the
// kubelet's contract within 100 ms, a container's environment names its devices, and a plugin lists all
// devices of containers. In a calm every promise holds again: pairs are as good as the best of the free
// devices, required alignment is enforced, the coordinator's holders are the kubelet's, no pod is refused
// that the kubelet alone would admit, the pairs file names the container's devices, and the scheduler's
// verdict is the kubelet's; an answer to an Allocate that names a container names the right one. With
// PodResources alone, which cannot always show the holders, a free device may count as held, and pairs are
// not judged.
//
// # Events and scripts
//
// A seed draws events one by one ([Event]), and one function lets an event happen. Each arrival of a pod has
// dice of its own, from which the kubelet draws, so that an event that is left out changes no later one. The
// events until a violation are a [Script], which is a text: the report of a seed contains it, and -shrink
// removes and simplifies its events as long as it breaks the same promise. TestScripts plays the scripts in
// testdata. A seed is evidence only together with the commit of its generator; a script stays valid.
//
// Each part of a script is a script: an event whose subject is not there does nothing, and promises of a
// calm are judged only after a calm without a later fault. A line "known: why" marks the script of a fault
// that is not mended: it has to break its promise, until whoever mends the fault removes the line.
//
// Times of some microseconds ([socket.call]) separate what would happen at the same time in a random order.
//
// # Conditions
//
// Each cycle of a storm and a calm has a condition, the conditions in turn ([conditions]): an event that
// the generator draws once, and that a script can have. It is counted, and so is each value of each option;
// a run of several seeds without one fails. Some last until the end of the storm; some come in a calm, most
// of them for the admission of one pod, which alone is not judged. "-condition=NAME" runs seeds under one
// condition.
//
// What is right under a condition: devices that the kubelet has lost its records of are given last while
// their containers run and the coordinator's file is there, and the scheduler's verdict is not judged,
// because the kubelet chooses NUMA nodes by devices that it takes for free. A file of a newer version or
// another layout is as good as none. The object that the scheduler reads does not have the node's
// --alignment, so that its verdict is not judged where that decides. Under best-effort a container that fits
// on no NUMA nodes gets all free devices of some nodes, and its pairs are the best with these.
//
// # Metamorphic rules
//
// The same pods come and go under other circumstances ([Place]); in each, every promise of a calm holds.
//
//   - The source of requests (Pods API, the kubelet's HTTPS server), restarts of plugins and kubelet between
//     pods, one process or two, and whether a plugin asks its own server directly or over the socket: each
//     container has the same devices, and the same pods are refused.
//   - The resource that the kubelet allocates first: the pairs of a container have the same distances, as
//     long as the containers before have the same devices. Afterwards other devices are free, and the pairs
//     are the best of these.
//
// No rule compares the policies or scopes of the Topology Manager, VFs with and without NUMA node, or
// PodResources alone with another source: they change the devices that the kubelet or the coordinator can
// choose from. The model has no differences between kubelet 1.36 and 1.37.
package simulation
