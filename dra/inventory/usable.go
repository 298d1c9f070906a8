// SPDX-License-Identifier: Apache-2.0

package inventory

import "strings"

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

func unusable(failure, what, held string) string {
	if failure == "" && held != "" {
		return what + " is in use by " + held
	}
	return failure
}
