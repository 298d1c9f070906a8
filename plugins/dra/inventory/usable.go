// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"slices"
	"strings"
)

// Failure returns why no container can use the GPU, for people; "" for a healthy one.
func (g GPU) Failure() string {
	if g.Healthy {
		return ""
	}
	return strings.TrimSuffix("GPU "+g.ID+" is unhealthy: "+g.Reason, ": ")
}

// Unusable returns why no claim can get the GPU, for people; "" if claims can.
func (g GPU) Unusable() string { return unusable(g.Failure(), "GPU "+g.ID, g.Held) }

// Failure returns why no container can use the VF, for people; "" for a healthy one.
func (v VF) Failure() string {
	if v.Fault == "" {
		return ""
	}
	return "VF " + v.ID + " is unhealthy: " + v.Fault
}

// Unusable returns why no claim can get the VF, for people; "" if claims can.
func (v VF) Unusable() string { return unusable(v.Failure(), "VF "+v.ID, v.Held) }

// Failure returns why one of some GPUs and VFs, by ID, is unhealthy or gone; "" if all are healthy.
func (m Machine) Failure(parts []string) (failure string) {
	for _, id := range parts {
		gpu := slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.ID == id })
		vf := slices.IndexFunc(m.VFs, func(v VF) bool { return v.ID == id })
		switch {
		case gpu >= 0:
			failure = cmp.Or(failure, m.GPUs[gpu].Failure())
		case vf >= 0:
			failure = cmp.Or(failure, m.VFs[vf].Failure())
		default:
			return "the node no longer has " + id
		}
	}
	return failure
}

func unusable(failure, what, held string) string {
	if failure == "" && held != "" {
		return what + " is in use by " + held
	}
	return failure
}
