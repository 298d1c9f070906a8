// SPDX-License-Identifier: Apache-2.0

package rdma

import "testing"

func TestVariable(t *testing.T) {
	t.Attr("parity", "sriov/env-pcidevice")
	for resource, want := range map[string]string{
		"nvidia.com/sriov-rdma-vf": "PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF",
		"intel.com/sriov_net_A":    "PCIDEVICE_INTEL_COM_SRIOV_NET_A",
		"a.b-c.io/x":               "PCIDEVICE_A_B-C_IO_X",
	} {
		if got := variableName(resource); got != want {
			t.Errorf("variable(%q) = %s; want %s", resource, got, want)
		}
	}
}

// TestShellName: a variable's name keeps all letters and digits that shells accept, the last of them too.
func TestShellName(t *testing.T) {
	const name, want = "PCIDEVICE_A-Z.0/9_@[:`", "PCIDEVICE_A_Z_0_9_____"
	if got := shellName(name); got != want {
		t.Errorf("%q is %q, want %q", name, got, want)
	}
}
