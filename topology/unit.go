// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"
)

// Unit is what a container has of the node by a device: a PCI function, or a part of a function. A unit has
// one container at a time, or several that all share the unit. Resource names and device IDs are names of a
// unit: after a change of the configuration, the same unit has other names.
type Unit struct {
	Name   string // "0000:0c:00.1", or of a part "0000:81:00.0/7-0"
	Shared bool   // by a replica of a GPU, or of an HCA
}

// NewUnit returns the unit of a function, or of its part: GPU instance and compute instance of a MIG device,
// index of a partition, name of a sub-function; "" for the whole function.
func NewUnit(function Address, part string, shared bool) Unit {
	unit := Unit{Name: function.String(), Shared: shared}
	if part != "" {
		unit.Name += "/" + part
	}
	return unit
}

// replicaMark is between the ID of a device and the number of a replica, as in the IDs of shared GPUs
// (NVIDIA/k8s-device-plugin, internal/rm/devices.go).
const replicaMark = "::"

// ReplicaID returns the kubelet's device ID of a replica: "0000:0c:00.0::3".
func ReplicaID(original string, number int) string {
	return fmt.Sprintf("%s%s%d", original, replicaMark, number)
}

// CutReplica returns the ID of the device of a replica; other IDs remain as they are.
func CutReplica(id string) (original string, replica bool) {
	original, _, replica = strings.Cut(id, replicaMark)
	return original, replica
}

// UnitOfID returns the unit of a device by the ID alone: of a device of another plugin, or of a plugin of an
// earlier version. A PCI address is a function; any other ID is no unit of this node's functions.
func UnitOfID(id string) Unit {
	original, shared := CutReplica(id)
	if function, err := ParseAddress(original); err == nil {
		original = function.String()
	}
	return Unit{original, shared}
}
