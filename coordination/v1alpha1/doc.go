// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the object that each node publishes: tandem.dev/v1alpha1 NodeTopology,
// cluster-scoped, with the name of the node. It contains the input of the kubelet's admission and the places
// of devices, so that a scheduler can compute both the kubelet's verdict and a container's pairs.
//
// Devices have numbers instead of names, and sets of devices have the kernel's format of CPU lists ("0-3,8").
// Both keep the object small: it is written whenever the kubelet assigns devices to a pod, and every
// scheduler receives it.
package v1alpha1
