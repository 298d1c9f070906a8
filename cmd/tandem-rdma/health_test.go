// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// answerOneUnhealthy is AMD's metrics exporter with one unhealthy NIC.
func answerOneUnhealthy(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	return stream.SendMsg(&health.NICStateResponse{NICState: []*health.NICState{
		{Device: "0000:2a:00.0", Health: "unhealthy"}, {Device: "0000:0c:00.0", Health: "healthy"},
	}})
}

// The kubelet gets the exporter's health from the first list on.
func TestMetricsExporter(t *testing.T) {
	t.Attr("parity", "amdnic/health-exporter")
	n := newNode(t, "oci-mi300x-derived", 0)
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "nic", "resourcePrefix": "amd.com",
		"enableExporterHealthCheck": true, "selectors": {"vendors": ["15b3"], "isRdma": true}}]}`)
	socket := filepath.Join(n.kubelet, "exporter")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(answerOneUnhealthy))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	kubelet, daemon := n.start(t, "--amd-exporter-socket="+socket)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	list := kubelettest.Await(t, plugin.Lists)
	for _, d := range list {
		if ill := d.GetID() == "0000:2a:00.0"; ill != (d.GetHealth() == v1beta1.Unhealthy) {
			t.Errorf("%s is %s", d.GetID(), d.GetHealth())
		}
	}
	daemon.Stop(t, syscall.SIGTERM)
	if len(list) != 8 {
		t.Errorf("%d devices:\n%s", len(list), daemon.Log())
	}
}

// TestPortsOfAFunction: VFs of a function with two ports are healthy while one of them has a link. VFs of a
// function without any link show that the daemon has read the links.
func TestPortsOfAFunction(t *testing.T) {
	s := functions.New()
	s.PF(0x81, "ens1f0", 2, nil)
	s.PF(0x82, "ens2", 2, nil)
	port(s, "0000:81:00.0", "ens1f0", "1")
	port(s, "0000:81:00.0", "ens1f0d1", "0")
	port(s, "0000:82:00.0", "ens2", "0")
	n := nodeOf(t, s.FS())
	n.write(t, "config.json", pool(`"pfNames": ["ens1f0", "ens2"]`))
	kubelet, daemon := n.start(t)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	healthy := healthyOf(kubelettest.Await(t, plugin.Lists))
	for slices.Contains(healthy, "0000:82:00.1") {
		healthy = healthyOf(kubelettest.Await(t, plugin.Lists))
	}
	daemon.Stop(t, syscall.SIGTERM)
	if want := []string{"0000:81:00.1", "0000:81:00.2"}; !slices.Equal(healthy, want) {
		t.Errorf("healthy are %v of both; want %v:\n%s", healthy, want, daemon.Log())
	}
}

// port sets the carrier of a netdev that is up, as it was before too.
func port(s functions.Sysfs, address, netdev, carrier string) {
	s.Netdev(address, netdev, "1")
	folder := functions.Dir(address) + "/net/" + netdev
	s.Write(folder+"/flags", "0x1003")
	s.Write(folder+"/carrier", carrier)
	s.Write(folder+"/carrier_up_count", "2")
}
