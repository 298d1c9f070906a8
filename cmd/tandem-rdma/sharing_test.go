// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

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

// The daemon in place of the RDMA shared device plugin: with that plugin's configuration and command line,
// with and without CDI.
func TestSharedDaemon(t *testing.T) {
	t.Attr("parity", "shared/config-json")
	t.Attr("parity", "shared/flags")
	t.Attr("parity", "shared/cdi-mode")
	others := []string{"nvidia.com_gpu.yaml", "sriov-dp-other.yaml"}
	for _, c := range []struct {
		name, annotation string
		flags            []string
		nodes            int
		specs            []string
	}{
		{"device nodes", "", nil, 4, others},
		{"CDI", "nvidia.com/net-rdma=0000:58:00.0", []string{"-use-cdi"}, 0, []string{
			"nvidia.com_gpu.yaml", "nvidia.com_rdma_shared_device_a.yaml", "nvidia.com_rdma_shared_device_b.yaml",
			"sriov-dp-other.yaml",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, "oci-mi300x-derived", 1)
			n.write(t, "config.json", stockShared)
			n.write(t, "cdi/sriov-dp-other.yaml", "") // of a plugin next to this one
			n.write(t, "cdi/nvidia.com_gpu.yaml", "kind: nvidia.com/gpu\n")
			n.write(t, "cdi/nvidia.com_before.yaml", "kind: nvidia.com/net-rdma\n")
			kubelet, cmd, stderr := n.start(t, append(c.flags, "-config-file="+n.path("config.json"))...)
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
			answer, err := plugins["rdma/rdma_shared_device_a"].Client.Allocate(t.Context(), &v1beta1.AllocateRequest{
				ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"0000:58:00.0::62"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := answer.GetContainerResponses()[0]
			if hca := got.GetEnvs()["NCCL_IB_HCA"]; !strings.HasPrefix(hca, "=mlx5_") || strings.Contains(hca, ",") {
				t.Errorf("NCCL_IB_HCA is %q", hca)
			}
			annotation := got.GetAnnotations()["cdi.k8s.io/nvidia.com_net-rdma"]
			if annotation != c.annotation || len(got.GetDevices()) != c.nodes {
				t.Errorf("answer %v", got)
			}
			if diff := cmp.Diff(c.specs, n.files(t, "cdi")); diff != "" {
				t.Error(diff)
			}
			end(t, cmd)
			if strings.Contains(stderr.String(), "note on the configuration") {
				t.Errorf("log:\n%s", stderr)
			}
			if diff := cmp.Diff(c.specs, n.files(t, "cdi")); diff != "" { // restarting containers need them
				t.Error(diff)
			}
		})
	}
}
