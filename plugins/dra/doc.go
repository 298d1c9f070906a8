// SPDX-License-Identifier: Apache-2.0

// Package dra is Tandem's driver for Dynamic Resource Allocation, an alternative to the two device plugins; a
// node never runs both.
//
// The scheduler allocates devices from the node's published data and has no model of switches. The node
// therefore publishes pairs: a device "pair" is a GPU with a VF of its switch, and a claim for four pairs has
// a count of four. The published data is a pure function (package pool) of the node's devices (package
// inventory). The access of a claim's containers is determined when the kubelet prepares the claim (package
// claims) and is the same as with the device plugins, by the same code. Package dra combines these for the
// lifetime of a node: it publishes, serves the kubelet, watches health, and keeps device plugins and DRA
// apart.
//
//	scheduler                 API server                    this driver                       kubelet
//	    │                         │ ◀── ResourceSlices ───────── │ inventory → pool               │
//	    │ ◀── slices, claims ──── │                              │                                │
//	    │ ─── claim: pair-… ────▶ │                              │                                │
//	    ┆                         ┆                              ┆                                ┆
//	    │                         │                              │ ◀──── NodePrepareResources ─── │
//	    │                         │                              │ claims: VFs of each container, │
//	    │                         │                              │ CDI spec, checkpoint           │
//	    │                         │ ◀── status.devices ───────── │ ───── names of CDI devices ──▶ │
package dra
