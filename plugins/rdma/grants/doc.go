// SPDX-License-Identifier: Apache-2.0

// Package grants says what a container gets with the devices of a pool: environment and device nodes, or the
// names of CDI devices, a device-info file for Multus, and what it is told of its
// pairs. All of it is looked up when a container gets it, below the roots of a [Host].
//
//	pools.Device ──Host.Grant──▶ Grant ──Host.Edits──▶ container.Edits ◀──Host.Pairs, Pairs.Tell
//	                               ├──Spec.Write──▶ CDI spec of the pool
//	                               └──Host.WriteDevinfo──▶ device-info file
package grants
