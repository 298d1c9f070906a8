// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tandem-k8s/tandem/plugins/health"
)

// Configurations of those who deploy plugins for NICs.
const (
	vfConfig = `{"resourceList": [{"resourceName": "vf", "resourcePrefix": "nvidia.com", "selectors": ` +
		`{"vendors": ["15b3"], "isRdma": true}}]}`
	// The result of the SR-IOV network operator for a SriovNetworkNodePolicy for ConnectX-7 with isRdma and
	// excludeTopology (createDevicePluginResource of k8snetworkplumbingwg/sriov-network-operator).
	policyConfig = `{"resourceList": [{"resourceName": "rdma_vf", "excludeTopology": true, "selectors": ` +
		`{"vendors": ["15b3"], "devices": ["101e"], "isRdma": true}}]}`
	// As the AMD network operator's chart writes it (helm-charts-k8s/templates/device-plugin-config.yaml).
	nicConfig = `{"resourceList": [` +
		`{"resourceName": "nic", "resourcePrefix": "amd.com", "enableExporterHealthCheck": true, "selectors": ` +
		`{"vendors": ["1dd8"], "devices": ["1002"], "drivers": ["ionic"], "isRdma": true},` +
		` "excludeTopology": false},` +
		`{"resourceName": "vnic", "resourcePrefix": "amd.com", "enableExporterHealthCheck": true, "selectors": ` +
		`{"vendors": ["1dd8"], "devices": ["1003"], "drivers": ["ionic"], "isRdma": true},` +
		` "excludeTopology": false}]}`
	// The example of NVIDIA's network operator, with fewer to share.
	hcaConfig = `{"configList": [{"resourceName": "rdma_shared_device_a", "rdmaHcaMax": 3, "selectors": ` +
		`{"vendors": ["15b3"]}}]}`
)

// nics is what a deployer of VFs offers on a machine of eight NICs.
type nics struct {
	perPF    int // VFs
	resource string
	healthy  int
}

// offered is what a pod of testdata offers, on a machine with VFs or without. AMD's metrics exporter says
// that one NIC is not well.
func offered(spec string, vfs bool) nics {
	switch {
	case spec == "rdma-shared-static" || spec == "nvidia-network-operator-shared":
		return nics{0, "rdma/rdma_shared_device_a", 8 * 3}
	case spec == "sriov-network-operator":
		return nics{2, "openshift.io/rdma_vf", 8 * 2}
	case spec == "amd-network-operator" && vfs:
		return nics{2, "amd.com/vnic", 8*2 - 2}
	case spec == "amd-network-operator":
		return nics{0, "amd.com/nic", 8 - 1}
	}
	return nics{2, "nvidia.com/vf", 8 * 2}
}

// installPollara puts AMD's Pensando NICs in the places of the machine's ConnectX NICs, and starts their
// metrics exporter.
func (n *node) installPollara(t *testing.T) {
	t.Helper()
	functions, err := filepath.Glob(n.path("sys/bus/pci/devices/*/infiniband"))
	ready(t, err)
	if len(functions) == 0 {
		t.Fatal("the machine has no NIC")
	}
	for _, function := range functions {
		function = filepath.Dir(function)
		device := "0x1003"
		if _, err := os.Stat(filepath.Join(function, "physfn")); err != nil {
			device = "0x1002"
		}
		driver := filepath.Join(function, "driver")
		old, err := os.Readlink(driver)
		ready(t, err)
		ready(t, os.Remove(driver))
		ready(t, os.Symlink(filepath.Join(filepath.Dir(old), "ionic"), driver))
		for file, content := range map[string]string{"vendor": "0x1dd8\n", "device": device + "\n"} {
			ready(t, os.Remove(filepath.Join(function, file))) // read-only
			write(t, filepath.Join(function, file), content)
		}
	}
	ready(t, os.MkdirAll(filepath.Dir(n.path(health.NICExporter)), 0o755))
	listener, err := net.Listen("unix", n.path(health.NICExporter))
	ready(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(metrics(functions).answer))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

// metrics is AMD's metrics exporter for functions of NICs.
type metrics []string

// unwell is the bus of the NIC that is not.
const unwell = "0000:41:"

// answer tells the health of all functions of NICs.
func (m metrics) answer(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	answer := &health.NICStateResponse{}
	for _, function := range m {
		state := &health.NICState{Device: filepath.Base(filepath.Dir(function)), Health: "healthy"}
		if strings.HasPrefix(state.GetDevice(), unwell) {
			state.Health = "unhealthy"
		}
		answer.NICState = append(answer.NICState, state)
	}
	return stream.SendMsg(answer)
}
