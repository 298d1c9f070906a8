// SPDX-License-Identifier: Apache-2.0

// Package model is a model of the kubelet's device manager and Topology Manager for tests of the coordinator
// (pkg/kubelet/cm/devicemanager/manager.go of 1.36 and 1.37; package topologymanager). It shares no code that
// decides with the product, which it judges. The model admits random pods with init containers,
// sidecars and several containers, and publishes the pods in PodResources, in the Pods API and in the device
// checkpoint.
//
// The model includes the behaviour of the kubelet that makes its state hard to follow:
//
//   - The resources of a container come in random order. Without a choice the kubelet does not call
//     GetPreferredAllocation.
//   - Later containers reuse the devices of init containers first, without GetPreferredAllocation. Unused
//     devices stay with the pod until the pod ends. PodResources omits init containers.
//   - The kubelet may fail a pod between two resources of a container. It frees the devices of ended pods at
//     the next admission or List, without a notification.
//   - The kubelet writes the checkpoint when a container has all its devices and when the device list of a
//     plugin changes. Devices of ended pods stay in the checkpoint until the next write.
//   - After a restart, the kubelet reads its checkpoint and lists its pods one by one. Until all pods are
//     listed, the kubelet frees no devices and the Pods API does not answer.
//
// [Kubelet.Holders] returns the true holder of each device. The package test/kubernetes/kubelet uses the real
// kubelet, and compares it with the model.
package model
