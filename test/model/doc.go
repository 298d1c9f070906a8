// SPDX-License-Identifier: Apache-2.0

// Package model is the kubelet's device manager and Topology Manager as a model, for the coordinator: it
// admits pods made up at random, with init containers, sidecars and several containers, and shows them in
// PodResources, in the pods of a source of intent and in the device checkpoint, as the kubelet does
// (pkg/kubelet/cm/devicemanager/manager.go of 1.36).
//
// What makes the real one hard to follow is in it:
//
//   - the resources of a container come in random order; it asks nothing where it has no choice;
//   - devices of init containers go to the containers after them, first and without a question, and the rest
//     stays with the pod for its life; PodResources shows no init container;
//   - a pod can be failed amid a container: what that has is free again when the devices of pods that have
//     ended are collected, at the next admission or List, and nobody is told;
//   - the checkpoint is written when a container has all its devices, and when a plugin's list changes; what
//     pods had that have ended stays in it until the next write;
//   - the kubelet starts anew: it reads its checkpoint, lists its pods one by one, and until all have come it
//     collects nothing, and the Pods API does not answer.
//
// It says itself whose each device is (Holders), which is what others are judged by. The kubelet that is not
// a model is in test/kubelet.
package model
