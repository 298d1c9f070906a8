// SPDX-License-Identifier: Apache-2.0

// Package models compares all models of the kubelet with the managers of the real one, on generated nodes and
// pods: every policy, scope and option of the Topology Manager, init containers, sidecars and app containers
// in any order, several resources, whose devices have a NUMA node or none, healthy and failed ones, requests
// of 0 and of too many.
//
//   - test/model, on which the simulation of a node runs, with its own Topology Manager: the judge.
//   - coordination/kubelet/model and devicemanager, by which the coordinator and the simulation of strategies
//     predict.
//   - coordination/verdict, by which the scheduler predicts.
//
// The plugins answer as the verdict foretells, so that the devices of one container leave the same devices to
// the next one in all models. Choices that the kubelet makes by the order of a Go map are taken from the real
// managers.
package models
