// SPDX-License-Identifier: Apache-2.0

// Package dra runs the DRA driver of a node in one process, under a virtual clock (testing/synctest), driven
// by one seed. A seed repeats itself to the byte.
//
//	scheduler ── allocation ──▶ API server ◀── slices, claims, pods ──▶ dra.Driver ──▶ hardware
//	                                                                        ▲   │
//	    kubelet ── registration, NodePrepareResources, Unprepare (gRPC) ────┘   ├── files on a disk with faults
//	       └── PodResources, Pods API, checkpoint of devices ───────────────────┘
//
// Product code runs unchanged. The simulation passes in what reaches out of the process: the client of the
// API server, the kubelet's connection and its records, the status socket, the disk, the PCI tree and the
// GPUs.
//
// Storms alternate with calms. In a storm calls of the kubelet are lost, repeated or given up, the API server
// is away or behind, writes to the disk fail, the driver is killed at any step of a call or of the disk, is
// replaced by an instance that overlaps, the machine loses power, hardware vanishes, pods and claims are
// deleted by force, and pods and claims of the same names follow. Feature gates of the API server go off and
// on, watches end because the API server has forgotten their versions, and now and then the node goes back to
// device plugins for a cycle, with a driver that drains. Some claims are those that the scheduler makes of
// extended resources. The promises are listed in judge.go: some hold in every weather, the others in a calm.
//
// Each storm has one condition more, in turn (conditions.go). TestConditions has one condition in every
// storm, and fails for a condition that does not come about.
//
// Three refusals are no breach. A pod whose devices have gone is refused. So is a pod with parts of a device
// that is allocated and not published at the moment: the scheduler knows nothing of the parts, and allocates
// them again; one of both pods waits for the end of the other. A kubelet without the Pods API names a pod
// that ended before the start of the driver to nobody, and the pod's devices wait for a new checkpoint.
//
// One call of the kubelet is in flight at a time: the driver serializes calls. The controller of slices
// writes slices in random order; therefore the API server takes or refuses all writes of a step.
package dra
