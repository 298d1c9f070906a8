// Package dra is Tandem's driver for Dynamic Resource Allocation: the third way into a node, beside the two
// device plugins and never together with them.
//
// The scheduler decides here, by what the node publishes, and knows nothing of switches. So the node
// publishes pairs: a device "pair" is a GPU with a VF of its switch, and a claim for four pairs is a count of
// four. What is published is a pure function (package pool) of what there is (package inventory). What the
// containers of a claim get is decided when the kubelet prepares the claim (package claims) and is what the
// device plugins give: the same code answers. This package puts them together for the life of a node: it
// publishes, is called by the kubelet, watches health, and keeps device plugins and DRA apart.
//
//	scheduler                 API server                    this driver                       kubelet
//	    │                         │ ◀── ResourceSlices ───────── │ inventory → pool               │
//	    │ ◀── slices, claims ──── │                              │                                │
//	    │ ─── claim: pair-… ────▶ │                              │                                │
//	    ┆                         ┆                              ┆                                ┆
//	    │                         │                              │ ◀──── NodePrepareResources ─── │
//	    │                         │                              │ claims: who gets which VF,     │
//	    │                         │                              │ CDI spec, checkpoint           │
//	    │                         │ ◀── status.devices ───────── │ ───── names of CDI devices ──▶ │
package dra
