// SPDX-License-Identifier: Apache-2.0

package functions

// Example returns a machine with a function for each kind of selector condition.
func Example() Sysfs {
	s := New()
	s.PF(0x81, "ens1", 4, nil)
	s.PF(0x82, "ens2", 2, Facts{"numa_node": "1", "driver": "ice"})
	s.Write(Dir("0000:82:00.1")+"/vendor", "0x8086")
	s.Write(Dir("0000:82:00.1")+"/device", "0x1889")
	s.Write(Dir("0000:82:00.2")+"/acpi_index", "7")
	// An InfiniBand PF. Its VF's own netdev is in a container.
	s.Function("0000:83:00.0", Facts{"class": "0x020700", "rdma": "mlx5_90", "sriov_numvfs": "1"})
	s.Netdev("0000:83:00.0", "ibs3", "32")
	s.Symlink(Dir("0000:83:00.0")+"/virtfn0", "../0000:83:00.1")
	s.Function("0000:83:00.1", Facts{"class": "0x020700", "pf": "0000:83:00.0", "rdma": "mlx5_91"})
	s.Write(Dir("0000:83:00.1")+"/infiniband/mlx5_91/ports/1/pkeys/0", "0x8001")
	// Two vDPA devices, and one with another driver.
	s.VDPA("0000:81:00.1", "vdpa0", "vhost_vdpa", "vhost-vdpa-0")
	s.VDPA("0000:81:00.2", "vdpa1", "virtio_vdpa", "")
	s.VDPA("0000:81:00.3", "vdpa2", "other", "")
	// Sub-functions of the PF without VFs, one of them in a container, and other auxiliary devices.
	s.Subfunction("0000:84:00.0", "mlx5_core.sf.2", "88", "ens4s88", "mlx5_70")
	s.Subfunction("0000:84:00.0", "mlx5_core.sf.3", "5", "", "")
	s.Write(Dir("0000:84:00.0")+"/mlx5_core.sf.3/mlx5_core.rdma.3/uevent", "")
	s.Write(Dir("0000:84:00.0")+"/mlx5_core.eth.2/uevent", "")
	s.Write(Dir("0000:84:00.0")+"/mlx5_core.rdma.2/uevent", "")
	// A PF without VFs, functions without RDMA, without driver, and of other classes.
	s.Function("0000:84:00.0", Facts{"netdev": "ens4", "sriov_numvfs": "0", "rdma": "mlx5_92"})
	s.Function("0000:85:00.0", Facts{
		"netdev": "ens5", "driver": "e1000e", "vendor": "0x8086", "device": "0x10d3",
	})
	s.Function("0000:86:00.0", Facts{"netdev": "", "driver": ""})
	s.Function("0000:87:00.0", Facts{
		"class": "0x120000", "driver": "qat", "vendor": "0x8086", "device": "0x4940",
	})
	s.Function("0000:88:00.0", Facts{"class": "0x030000", "driver": "amdgpu"})
	return s
}
