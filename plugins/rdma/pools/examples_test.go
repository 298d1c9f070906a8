// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// documented is a machine with the devices that the stock plugin's documentation writes about. The kind of a
// device is in its bus number, which the table below names.
func documented() functions.Sysfs {
	s := functions.New()
	vfs := func(bus int, netdev string, count int, given functions.Facts) {
		pf := fmt.Sprintf("0000:%02x:00.0", bus)
		s.Function(pf, functions.Facts{
			"vendor": given["vendor"], "driver": given["pfDriver"], "netdev": netdev,
			"sriov_numvfs": fmt.Sprint(count),
		})
		for i := range count {
			vf := fmt.Sprintf("0000:%02x:%02x.%d", bus, (i+2)/8, (i+2)%8)
			s.Symlink(fmt.Sprintf("%s/virtfn%d", functions.Dir(pf), i), "../"+vf)
			f := functions.Facts{
				"pf": pf, "vendor": given["vendor"], "device": given["device"], "driver": given["driver"],
			}
			if given["driver"] != "vfio-pci" {
				f["netdev"] = fmt.Sprintf("%sv%d", netdev, i)
			}
			if given["rdma"] != "" {
				f["rdma"] = fmt.Sprintf("mlx5_%d%d", bus, i)
			}
			s.Function(vf, f)
		}
	}
	vfs(0x10, "ens785f0", 2, functions.Facts{
		"vendor": "0x8086", "device": "0x154c", "driver": "i40evf", "pfDriver": "i40e",
	})
	vfs(0x11, "enp0s0f0", 2, functions.Facts{
		"vendor": "0x8086", "device": "0x154c", "driver": "vfio-pci", "pfDriver": "i40e",
	})
	vfs(0x12, "enp2s2f1", 1, functions.Facts{
		"vendor": "0x8086", "device": "0x1889", "driver": "vfio-pci", "pfDriver": "ice",
	})
	vfs(0x13, "ens1f0", 2, functions.Facts{
		"vendor": "0x8086", "device": "0x1889", "driver": "iavf", "pfDriver": "ice", "rdma": "yes",
	})
	vfs(0x14, "ens2f0", 1, functions.Facts{
		"vendor": "0x8086", "device": "0x1889", "driver": "iavf", "pfDriver": "ice",
	})
	vfs(0x20, "ens3f0", 1, functions.Facts{
		"vendor": "0x15b3", "device": "0x1018", "driver": "mlx5_ib", "pfDriver": "mlx5_core", "rdma": "yes",
	})
	vfs(0x21, "ens4f0", 2, functions.Facts{
		"vendor": "0x15b3", "device": "0x1018", "driver": "mlx5_core", "pfDriver": "mlx5_core", "rdma": "yes",
	})
	vfs(0x22, "ens5f0", 1, functions.Facts{
		"vendor": "0x15b3", "device": "0x1016", "driver": "mlx5_core", "pfDriver": "mlx5_core", "rdma": "yes",
	})
	vfs(0x23, "ens6f0", 2, functions.Facts{
		"vendor": "0x15b3", "device": "0x101e", "driver": "mlx5_core", "pfDriver": "mlx5_core",
	})
	s.VDPA("0000:23:00.2", "vdpa0", "vhost_vdpa", "vhost-vdpa-0")
	s.VDPA("0000:23:00.3", "vdpa1", "virtio_vdpa", "")
	s.Function("0000:24:00.2", functions.Facts{"class": "0x020700", "device": "0x101c", "rdma": "mlx5_240"})
	s.Netdev("0000:24:00.2", "ibs7v0", "32")
	s.Function("0000:25:00.0", functions.Facts{"device": "0xa2d6", "netdev": "p0", "rdma": "mlx5_250"})
	for i := range 7 {
		s.Subfunction("0000:25:00.0", fmt.Sprintf("mlx5_core.sf.%d", 10+i), fmt.Sprint(i),
			fmt.Sprintf("en3f0pf0sf%d", i), "")
	}
	vfs(0x30, "ens8f0", 1, functions.Facts{
		"vendor": "0x14e4", "device": "0x1750", "driver": "bnxt_en", "pfDriver": "bnxt_en",
	})
	s.Function("0000:40:00.0", functions.Facts{
		"class": "0x120000", "vendor": "0x8086", "device": "0x0d90", "driver": "dfl-pci",
	})
	return s
}

// documentedDDP is what devlink says of the PFs.
func documentedDDP(_, pf topology.Address) string {
	return map[uint8]string{0x13: "ICE OS Default Package", 0x14: "ICE COMMS Package"}[pf.Bus]
}

// The examples of the stock plugin's documentation, and what the SR-IOV network operator makes of its
// policies (the form of docs/config-file/README.md), select what the documentation says, device by device.
func TestDocumentedExamples(t *testing.T) {
	for _, c := range []struct {
		about string
		list  []string
		want  map[string]string // IDs separated by blanks, by resource
	}{
		{"deployments/configMap.yaml", []string{
			`{"resourceName": "intel_sriov_netdevice", "selectors": {"vendors": ["8086"], "devices": ["154c", "10ed", "1889"], "drivers": ["i40evf", "iavf", "ixgbevf"]}}`,
			`{"resourceName": "intel_sriov_dpdk", "selectors": {"vendors": ["8086"], "devices": ["154c", "10ed", "1889"], "drivers": ["vfio-pci"], "pfNames": ["enp0s0f0","enp2s2f1"]}}`,
			`{"resourceName": "mlnx_sriov_rdma", "selectors": {"vendors": ["15b3"], "devices": ["1018"], "drivers": ["mlx5_ib"], "isRdma": true}}`,
			`{"resourceName": "brcm_sriov_bnxt", "selectors": {"vendors": ["14e4"], "devices": ["1750"], "drivers": ["bnxt_en"]}}`,
		}, map[string]string{
			"intel.com/intel_sriov_netdevice": "0000:10:00.2 0000:10:00.3 0000:13:00.2 0000:13:00.3 0000:14:00.2",
			"intel.com/intel_sriov_dpdk":      "0000:11:00.2 0000:11:00.3 0000:12:00.2",
			"intel.com/mlnx_sriov_rdma":       "0000:20:00.2",
			"intel.com/brcm_sriov_bnxt":       "0000:30:00.2",
		}},
		{"README.md, Configurations", []string{
			`{"resourceName": "intel_sriov_dpdk", "resourcePrefix": "intel.com", "selectors": [{"vendors": ["8086"], "devices": ["154c", "10ed", "1889"], "drivers": ["vfio-pci"], "pfNames": ["enp0s0f0","enp2s2f1"], "needVhostNet": true}]}`,
			`{"resourceName": "mlnx_sriov_rdma", "resourcePrefix": "mellanox.com", "selectors": [{"vendors": ["15b3"], "devices": ["1018"], "drivers": ["mlx5_ib"], "isRdma": true}]}`,
			`{"resourceName": "infiniband_rdma_netdevs", "selectors": [{"linkTypes": ["infiniband"], "isRdma": true}]}`,
			`{"resourceName": "ct6dx_vdpa_vhost", "selectors": [{"vendors": ["15b3"], "devices": ["101e"], "drivers": ["mlx5_core"], "vdpaType": "vhost"}]}`,
			`{"resourceName": "intel_fpga", "deviceType": "accelerator", "selectors": [{"vendors": ["8086"], "devices": ["0d90"]}]}`,
			`{"resourceName": "bf2_sf", "resourcePrefix": "nvidia.com", "deviceType": "auxNetDevice", "selectors": [{"vendors": ["15b3"], "devices": ["a2d6"], "pfNames": ["p0#1-5"], "auxTypes": ["sf"]}]}`,
			`{"resourceName": "brcm_sriov_bnxt", "resourcePrefix": "broadcom.com", "selectors": [{"vendors": ["14e4"], "devices": ["1750"], "drivers": ["bnxt_en"]}]}`,
		}, map[string]string{
			"intel.com/intel_sriov_dpdk":        "0000:11:00.2 0000:11:00.3 0000:12:00.2",
			"mellanox.com/mlnx_sriov_rdma":      "0000:20:00.2",
			"intel.com/infiniband_rdma_netdevs": "0000:24:00.2",
			"intel.com/ct6dx_vdpa_vhost":        "0000:23:00.2",
			"intel.com/intel_fpga":              "0000:40:00.0",
			"nvidia.com/bf2_sf": "mlx5_core.sf.11 mlx5_core.sf.12 mlx5_core.sf.13 mlx5_core.sf.14 " +
				"mlx5_core.sf.15",
			"broadcom.com/brcm_sriov_bnxt": "0000:30:00.2",
		}},
		{"docs/dpdk/configMap-all-nics.yaml", []string{
			`{"resourcePrefix": "dpdk.org", "resourceName": "nic", "selectors": [{"vendors": ["15b3"], "devices": ["1016"], "drivers": ["mlx5_core"], "isRdma": true},
				{"vendors": ["15b3"], "devices": ["1018"], "drivers": ["mlx5_core"], "isRdma": true}, {"vendors": ["8086"], "devices": ["154c"], "drivers": ["vfio-pci"]}]}`,
		}, map[string]string{"dpdk.org/nic": "0000:11:00.2 0000:11:00.3 0000:21:00.2 0000:21:00.3 0000:22:00.2"}},
		{"docs/dpdk/mlnx-dpdk/configMap.yaml", []string{
			`{"resourcePrefix": "mellanox.com", "resourceName": "mlnx_connectx4", "selectors": {"vendors": ["15b3"], "devices": ["1016"], "drivers": ["mlx5_core"], "isRdma": true}}`,
			`{"resourcePrefix": "mellanox.com", "resourceName": "mlnx_connectx5", "selectors": {"vendors": ["15b3"], "devices": ["1018"], "drivers": ["mlx5_core"], "isRdma": true}}`,
		}, map[string]string{
			"mellanox.com/mlnx_connectx4": "0000:22:00.2", "mellanox.com/mlnx_connectx5": "0000:21:00.2 0000:21:00.3",
		}},
		{"docs/rdma/configMap.yaml", []string{
			`{"resourceName": "mlnx_rdma", "resourcePrefix": "mellanox.com", "selectors": [{"vendors": ["15b3"], "devices": ["1016", "1018"], "drivers": ["mlx5_core"], "isRdma": true}]}`,
			`{"resourceName": "intel_rdma", "selectors": {"vendors": ["8086"], "devices": ["1889"], "drivers": ["iavf"], "isRdma": true}}`,
		}, map[string]string{
			"mellanox.com/mlnx_rdma": "0000:21:00.2 0000:21:00.3 0000:22:00.2",
			"intel.com/intel_rdma":   "0000:13:00.2 0000:13:00.3",
		}},
		{"docs/vdpa/configMap.yaml, without its stray brace", []string{
			`{"resourceName": "vdpa_mlx_virtio", "selectors": [{"vendors": ["15b3"], "devices": ["101e"], "drivers": ["mlx5_core"], "vdpaType": "virtio"}]}`,
			`{"resourceName": "vdpa_mlx_vhost", "selectors": [{"vendors": ["15b3"], "devices": ["101e"], "drivers": ["mlx5_core"], "vdpaType": "vhost"}]}`,
		}, map[string]string{
			"intel.com/vdpa_mlx_virtio": "0000:23:00.3", "intel.com/vdpa_mlx_vhost": "0000:23:00.2",
		}},
		{"docs/ddp/e800/configMap.yaml", []string{
			`{"resourceName": "e800_default", "resourcePrefix": "intel.com", "selectors": [{"vendors": ["8086"], "devices": ["1889"], "ddpProfiles": ["ICE OS Default Package"]}]}`,
			`{"resourceName": "e800_comms", "resourcePrefix": "intel.com", "selectors": [{"vendors": ["8086"], "devices": ["1889"], "ddpProfiles": ["ICE COMMS Package"]}]}`,
		}, map[string]string{
			"intel.com/e800_default": "0000:13:00.2 0000:13:00.3", "intel.com/e800_comms": "0000:14:00.2",
		}},
		{"docs/subfunctions/README.md", []string{
			`{"resourceName": "cx6dx_vf", "resourcePrefix": "nvidia.com", "selectors": {"vendors": ["15b3"], "devices": ["101e"]}}`,
			`{"resourceName": "bf2_sf", "resourcePrefix": "nvidia.com", "deviceType": "auxNetDevice", "selectors": {"vendors": ["15b3"], "devices": ["a2d6"], "auxTypes": ["sf"]}}`,
		}, map[string]string{
			"nvidia.com/cx6dx_vf": "0000:23:00.2 0000:23:00.3",
			"nvidia.com/bf2_sf": "mlx5_core.sf.10 mlx5_core.sf.11 mlx5_core.sf.12 mlx5_core.sf.13 mlx5_core.sf.14 " +
				"mlx5_core.sf.15 mlx5_core.sf.16",
		}},
		{"the operator, a node of docs/config-file/README.md", []string{
			`{"resourceName":"sriovnics","selectors":{"pfNames":["ens785f0#0-4","ens4f0#1-9"],"IsRdma":false,"NeedVhostNet":false},"SelectorObj":null}`,
		}, map[string]string{"intel.com/sriovnics": "0000:10:00.2 0000:10:00.3 0000:21:00.3"}},
		{"the operator, RDMA and two policies", []string{
			`{"resourceName":"rdma","selectors":{"vendors":["15b3"],"pfNames":["ens4f0#0-0"],"rootDevices":["0000:21:00.0"],"linkTypes":["ether"],"IsRdma":true,"NeedVhostNet":true},"SelectorObjs":null}`,
			`{"resourceName":"all","selectors":{"vendors":["15b3"],"pfNames":["ens4f0#0-7"],"IsRdma":true,"NeedVhostNet":false},"SelectorObjs":null}`,
		}, map[string]string{"intel.com/rdma": "0000:21:00.2", "intel.com/all": "0000:21:00.3"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			finder := Finder{Sys: documented().FS(), Prefix: "intel.com", DDP: documentedDDP}
			pools, _, err := finder.Find(config(t, resources(c.list...)))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, pool := range pools {
				got[pool.Name] = strings.Join(ids(pool), " ")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
