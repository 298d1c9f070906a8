// SPDX-License-Identifier: Apache-2.0

// Package managers has the CPU and memory managers of published nodes: the kubelet's own code, on what a
// node's object says of its CPUs and memory. Package verdict asks them for their hints.
//
// It is right for static policies with all of their options but those of uncore caches, of which the object
// does not tell. Options that the kubelet takes with a feature gate alone (CPUManagerPolicyAlphaOptions) need
// it here too. Resources of a pod as a whole are looked at as the kubelet's feature gates of this version are
// by default: these pods get no CPUs and no memory of their own.
//
// It is built with the kubelet of 1.37, and with the build tag kubernetes136 with that of 1.36.
package managers
