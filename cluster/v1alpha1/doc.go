// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the object that a node publishes: tandem.dev/v1alpha1 NodeTopology, cluster-scoped, one
// for each node and of its name. It holds what the kubelet goes by when it admits a pod, and where the
// devices are, so that a scheduler can compute both the kubelet's verdict and the pairs that a container
// would get.
//
// Devices have numbers instead of names, and sets of them are written as the kernel writes lists of CPUs
// ("0-3,8"). That keeps the object small: it is written whenever the kubelet gives devices to a pod, and
// every scheduler receives it.
package v1alpha1
