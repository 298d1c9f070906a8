// SPDX-License-Identifier: Apache-2.0

// Package grants determines a container's access to the devices of a pool: environment and device nodes, or
// the names of CDI devices, a device-info file for Multus, and the description of the container's pairs. All
// of it is read at the time of the allocation, below the roots of a [Host].
//
//	pools.Device ──Host.Grant──▶ Grant ──Host.Edits──▶ container.Edits ◀──Host.Pairs, Pairs.Tell
//	                               ├──Spec.Write──▶ CDI spec of the pool
//	                               └──Host.WriteDevinfo──▶ device-info file
package grants
