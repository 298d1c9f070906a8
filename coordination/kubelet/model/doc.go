// SPDX-License-Identifier: Apache-2.0

// Package model is what decides the admission of a pod on a node, in one value: the settings of the kubelet,
// the NUMA nodes of the machine, the rule of Tandem's plugins for pairs, and the devices as the kubelet knows
// them. Each prediction reads this value, whether made from the node's files or from the published object, so
// that none lacks an input that another one has.
package model
