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
// verdict is the kubelet's. With PodResources alone, which cannot always show the holders, holders and pairs
// are not judged.
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
// # Metamorphic rules
//
// The same pods come and go under other circumstances ([Place]); in each, every promise of a calm holds.
//
//   - The source of requests (Pods API, the kubelet's HTTPS server, API server), restarts of plugins and
//     kubelet between pods, and one process or two: each container has the same devices, and the same pods
//     are refused.
//   - The resource that the kubelet allocates first: the pairs of a container have the same distances, as
//     long as the containers before have the same devices. Afterwards other devices are free, and the pairs
//     are the best of these.
//
// No rule compares the policies of the Topology Manager, VFs with and without NUMA node, or PodResources
// alone with another source: they change the devices that the kubelet or the coordinator can choose from. The
// model has no differences between kubelet 1.36 and 1.37.
package simulation
