// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
)

// TestDoctorReadsKeysAsTheKubelet: the kubelet ignores keys of its configuration in another case, and starts
// with the default.
func TestDoctorReadsKeysAsTheKubelet(t *testing.T) {
	t.Parallel()
	const policy = "topologyManagerPolicy: restricted"
	for _, c := range []struct{ name, line, as, want string }{
		{"as documented", policy, policy, ""},
		{"small letters", policy, "topologymanagerpolicy: restricted", "topology-policy"},
		{"capital", policy, "TopologyManagerPolicy: restricted", "topology-policy"},
		{"CPU manager", "cpuManagerPolicy: static", "cpumanagerpolicy: static", "cpu-manager"},
		{"reserved CPUs", `reservedSystemCPUs: "0"`, `reservedSystemCpus: "0"`, "reserved-cpus"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
			s.kubelet(c.line, c.as)
			found := s.findings()
			if c.want == "" && len(found) > 0 {
				t.Errorf("found\n%s", doctor.Report(found))
			}
			if c.want != "" && !slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.ID == c.want }) {
				t.Errorf("no finding %s:\n%s", c.want, doctor.Report(found))
			}
		})
	}
}
