// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// neverTwice fails if a GPU was allocated twice: by one name, or as a GPU and as a pair. The scheduler's
// allocations are compared, by the names of devices.
func (c *cluster) neverTwice() {
	c.t.Helper()
	claims, err := c.ResourceV1().ResourceClaims("").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	holder := map[string]string{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			_, function, _ := strings.Cut(result.Device, "-")
			device := result.Pool + "/" + function
			if other, taken := holder[device]; taken {
				c.t.Errorf("%s of %s is allocated to %s and to %s", result.Device, result.Pool, other, claim.Name)
			}
			holder[device] = claim.Name
		}
	}
}
