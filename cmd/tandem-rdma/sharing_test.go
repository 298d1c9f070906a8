// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// stockShared is an example configuration of NVIDIA's network operator, with the names of the machine.
const stockShared = `{
  "periodicUpdateInterval": 300,
  "configList": [
    {"resourceName": "rdma_shared_device_a", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"], "linkTypes": ["ether"]}},
    {"resourceName": "rdma_shared_device_b", "rdmaHcaMax": 5, "devices": ["rdma3"]}
  ]
}`

// The daemon in place of the RDMA shared device plugin: with that plugin's configuration and command line.
func TestSharedDaemon(t *testing.T) {
	t.Attr("parity", "shared/config-json")
	t.Attr("parity", "shared/flags")
	t.Attr("parity", "shared/cdi-mode")
	n := newNode(t, "oci-mi300x-derived", 1)
	n.write(t, "config.json", stockShared)
	n.write(t, "cdi/sriov-dp-other.yaml", "") // of a plugin next to this one
	n.write(t, "cdi/nvidia.com_gpu.yaml", "kind: nvidia.com/gpu\n")
	n.write(t, "cdi/nvidia.com_before.yaml", "kind: nvidia.com/net-rdma\n")
	kubelet, daemon := n.start(t, "-use-cdi", "-config-file="+n.path("config.json"))
	counts, plugins := map[string]int{}, map[string]*kubelettest.Plugin{}
	for range 2 {
		plugin := kubelettest.Await(t, kubelet.Plugins)
		name := plugin.Request.GetResourceName()
		plugins[name] = plugin
		counts[name] = len(kubelettest.Await(t, plugin.Lists))
	}
	// 8 HCAs and their 8 VFs, as with the stock plugin; and one by name
	want := map[string]int{"rdma/rdma_shared_device_a": 16 * 63, "rdma/rdma_shared_device_b": 5}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Fatal(diff)
	}
	got, err := plugins["rdma/rdma_shared_device_a"].Allocate(t.Context(), "0000:58:00.0::62")
	if err != nil {
		t.Fatal(err)
	}
	if hca := got.GetEnvs()["NCCL_IB_HCA"]; !strings.HasPrefix(hca, "=mlx5_") || strings.Contains(hca, ",") {
		t.Errorf("NCCL_IB_HCA is %q", hca)
	}
	annotation := got.GetAnnotations()["cdi.k8s.io/nvidia.com_net-rdma"]
	if annotation != "nvidia.com/net-rdma=0000:58:00.0" || len(got.GetDevices()) > 0 {
		t.Errorf("answer %v", got)
	}
	specs := []string{
		"nvidia.com_gpu.yaml", "nvidia.com_rdma_shared_device_a.yaml", "nvidia.com_rdma_shared_device_b.yaml",
		"sriov-dp-other.yaml",
	}
	if diff := cmp.Diff(specs, n.files(t, "cdi")); diff != "" {
		t.Error(diff)
	}
	daemon.Stop(t, syscall.SIGTERM)
	if strings.Contains(daemon.Log(), "note on the configuration") {
		t.Errorf("log:\n%s", daemon.Log())
	}
	if diff := cmp.Diff(specs, n.files(t, "cdi")); diff != "" { // restarting containers need them
		t.Error(diff)
	}
}
