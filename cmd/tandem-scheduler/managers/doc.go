// SPDX-License-Identifier: Apache-2.0

// Package managers runs the kubelet's CPU and memory managers for published nodes: the kubelet's own code, on
// the CPUs and memory in a node's object. Package verdict queries their hints.
//
// The results are exact for the static policies with all options except those for uncore caches, which the
// object does not contain. Options behind a feature gate of the kubelet (CPUManagerPolicyAlphaOptions) need
// the same gate here. Pod-level resources follow the default feature gates of the kubelet's version: such
// pods get no exclusive CPUs or memory.
//
// The package builds with the kubelet of 1.37, and with that of 1.36 under the build tag kubernetes136.
package managers
