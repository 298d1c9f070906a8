// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

// What a resource asks for beside the stock answer, and nothing else, is in the answer.
func TestPairOptions(t *testing.T) {
	const prefix = "PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF"
	all := func(names ...string) string { return `"variables": ["` + strings.Join(names, `", "`) + `"]` }
	served := []pairs.Served{
		{GPU: topology.Address{Bus: 0x87}, VF: "0000:86:02.3"},
		{GPU: topology.Address{Bus: 0x88}, VF: "0000:86:02.3"},
		{GPU: topology.Address{Bus: 0x89}, VF: "of another resource"},
	}
	for _, c := range []struct {
		tandem string
		served []pairs.Served
		want   map[string]string
	}{
		{`{}`, served, map[string]string{}},
		{`{"alias": true}`, served,
			map[string]string{
				"PCIDEVICE_NVIDIA_COM_SRIOV_RDMA_VF": "0000:86:02.3", "PCIDEVICE_NVIDIA_COM_SRIOV_RDMA_VF_INFO": "",
			}},
		{`{` + all("VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS") + `}`, served, map[string]string{
			"VLLM_GPU_NIC_PCIE_MAPPING": "0000:87:00.0=0000:86:02.3,0000:88:00.0=0000:86:02.3",
			"VLLM_NIC_SELECTION_VARS":   "UCX_NET_DEVICES:1,NVSHMEM_HCA_LIST:1,NCCL_IB_HCA:1",
		}},
		{`{` + all("VLLM_GPU_NIC_PCIE_MAPPING") + `}`, nil, map[string]string{}}, // no coordinator
		{`{` + all("NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST") + `}`, nil, map[string]string{
			"NCCL_IB_HCA": "=mlx5_5", "UCX_NET_DEVICES": "mlx5_5:1", "NVSHMEM_HCA_LIST": "mlx5_5:1",
		}},
	} {
		plain, _ := offered(t, rdmaVF(), devices("infiniband/rdma_cm"), "nvidia.com", resources(rdmaPool))
		stock, err := respond(t.Context(), plain, []string{"0000:86:02.3"})
		if err != nil {
			t.Fatal(err)
		}
		p, member := offered(t, rdmaVF(), devices("infiniband/rdma_cm"), "nvidia.com",
			resources(`{"tandem": `+c.tandem+`, `+rdmaPool[1:]))
		member.served = c.served
		got, err := respond(t.Context(), p, []string{"0000:86:02.3"})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.want["PCIDEVICE_NVIDIA_COM_SRIOV_RDMA_VF_INFO"]; ok {
			c.want["PCIDEVICE_NVIDIA_COM_SRIOV_RDMA_VF_INFO"] = stock.Envs[prefix+"_INFO"]
		}
		maps.Copy(c.want, stock.Envs)
		if diff := cmp.Diff(c.want, got.Envs); diff != "" {
			t.Errorf("%s: %s", c.tandem, diff)
		}
		got.Envs = stock.Envs
		if !proto.Equal(stock, got) {
			t.Errorf("%s: %v; want beside the variables %v", c.tandem, got, stock)
		}
	}
}

// The order of the variables is that of the VFs, and devices without RDMA are left out of them.
func TestPairVariablesOrder(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1", 3, nil)
	s.Remove(functions.Dir("0000:81:00.2") + "/infiniband")
	s.Remove(functions.Dir("0000:81:00.2") + "/infiniband_verbs")
	p, _ := offered(t, s, nil, "intel.com",
		resources(`{"resourceName": "a", "tandem": {"variables": ["UCX_NET_DEVICES", "NCCL_IB_HCA"]}}`))
	got, err := respond(t.Context(), p, []string{"0000:81:00.1", "0000:81:00.2", "0000:81:00.3"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Envs["UCX_NET_DEVICES"] != "mlx5_1293:1,mlx5_1291:1" ||
		got.Envs["NCCL_IB_HCA"] != "=mlx5_1293,mlx5_1291" {
		t.Errorf("%v", got.Envs)
	}
}

// Without the coordinator the pairs file is complete as far as this plugin goes; every container has its own.
func TestPairsFileIsMounted(t *testing.T) {
	p, member := offered(t, rdmaVF(), nil, "nvidia.com", resources(`{"tandem": {"pairs": true}, `+rdmaPool[1:]))
	p.host.PairsDir = t.TempDir() + "/pairs"
	for range 2 {
		got, err := respond(t.Context(), p, []string{"0000:86:02.3"})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Mounts) != 1 || got.Mounts[0].ContainerPath != "/run/tandem/pairs.json" ||
			!got.Mounts[0].ReadOnly {
			t.Fatalf("mounts %v", got.Mounts)
		}
		file := got.Mounts[0].HostPath
		written, err := pairs.Read(file)
		want := pairs.New([]pairs.VF{{
			ID: "0000:86:02.3", Address: topology.Address{Bus: 0x86, Device: 2, Function: 3},
			Resource: "nvidia.com/sriov-rdma-vf", RDMA: "mlx5_5", Netdev: "ens1v0",
		}})
		if diff := cmp.Diff(want, written); diff != "" || err != nil {
			t.Errorf("%v, %s", err, diff)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o444 {
			t.Errorf("mode %v, %v; want 0444", info.Mode(), err)
		}
		if member.paired[len(member.paired)-1] != file {
			t.Errorf("the coordinator was told of %v; want %s", member.paired, file)
		}
	}
	if member.paired[0] == member.paired[1] {
		t.Errorf("two containers share %s", member.paired[0])
	}
	// What the coordinator has written stays, whether its answer was late or not.
	for _, inTime := range []bool{true, false} {
		full := pairs.New([]pairs.VF{{ID: "and more"}})
		member.writes = func(file string, vfs []pairs.VF) bool {
			if len(vfs) != 1 || vfs[0].RDMA != "mlx5_5" {
				t.Errorf("the coordinator was told of VFs %v", vfs)
			}
			if err := full.Write(p.host.Disk, file); err != nil {
				t.Error(err)
			}
			return inTime
		}
		got, err := respond(t.Context(), p, []string{"0000:86:02.3"})
		if err != nil || len(got.Mounts) != 1 {
			t.Fatal(got, err)
		}
		if written, err := pairs.Read(got.Mounts[0].HostPath); err != nil || !cmp.Equal(full, written) {
			t.Errorf("in time %v: %v, %v; want %v", inTime, written, err, full)
		}
	}
	member.writes = nil
	// Where the file cannot be written the container gets its devices all the same.
	p.host.PairsDir = "/dev/null/pairs"
	if got, err := respond(t.Context(), p, []string{"0000:86:02.3"}); err != nil || len(got.Mounts) > 0 ||
		len(got.Devices) == 0 {
		t.Errorf("answer %v, %v", got, err)
	}
}

// The variables that a configuration may have are those that something is known to say of.
func TestEveryPairVariableIsKnown(t *testing.T) {
	if got := slices.Sorted(maps.Keys(pairVariables)); !slices.Equal(got, pools.PairVariables) {
		t.Errorf("%v can be told; %v can be asked for", got, pools.PairVariables)
	}
}
