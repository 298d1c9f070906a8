// SPDX-License-Identifier: Apache-2.0

// Package asking identifies the container for which the kubelet requests or allocates devices: pure functions
// of values read before.
//
// The kubelet names no container. A container in admission is a container whose spec requests a resource of
// Tandem and has no device of the resource yet (candidates.go, identify.go). If a request source reports the
// pods of the node (package intent) and the kubelet's records report the holders (package holders), at most
// one container matches, because the kubelet admits containers serially.
//
// Without a request source, the order of the calls identifies the container (sequence.go). The kubelet writes
// its device checkpoint after all resources of a container are allocated, before the next container. A call
// therefore belongs to the container of the latest Allocate if, and only if, the checkpoint is unchanged
// since. Two exceptions:
//
//   - A changed device list writes the checkpoint amid a container. PodResources then shows the container.
//   - If the kubelet rejects a pod amid a container, the kubelet does not write the checkpoint. The pod is
//     then missing in PodResources and in request sources (gone.go). Of a container whose pod is unknown,
//     a pause of a second decides: no kubelet needs as long between two resources.
package asking
