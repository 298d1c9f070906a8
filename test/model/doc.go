// SPDX-License-Identifier: Apache-2.0

// Package model is a model of the kubelet's device manager and Topology Manager, for tests of the
// coordinator: it admits random pods with init containers, sidecars and several containers, and shows them in
// PodResources, in the pods of a source of pod requests and in the device checkpoint, like the kubelet
// (pkg/kubelet/cm/devicemanager/manager.go of 1.36).
//
// It includes the difficult behaviour of the kubelet:
//
//   - the resources of a container come in random order, without a question if there is no choice;
//   - devices of init containers go to later containers, first and without a question, and the rest
//     stays with the pod for its life; PodResources shows no init container;
//   - a pod can fail during the admission of a container: its devices become free without a notification
//     when the devices of ended pods are collected, at the next admission or List;
//   - the checkpoint is written when a container has all its devices, and when a plugin's list changes;
//     devices of ended pods stay in it until the next write;
//   - the kubelet restarts: it reads its checkpoint and lists its pods one by one; until all have come it
//     collects nothing, and the Pods API does not answer.
//
// Holders returns the true holder of each device, as a reference for others. The real kubelet managers are in
// test/kubernetes/kubelet.
package model
