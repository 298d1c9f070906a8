// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// TestPortsOfAFunction: VFs of a function with two ports are healthy while one of them has a link. VFs of a
// function without any link show that the daemon has read the links.
func TestPortsOfAFunction(t *testing.T) {
	for _, c := range []struct {
		name  string
		ports func(s functions.Sysfs, pf string)
	}{
		{name: "with links", ports: func(s functions.Sysfs, pf string) {
			port(s, pf, "ens1f0", "1")
			port(s, pf, "ens1f0d1", "1")
		}},
		{
			name: "a netdev without carrier",
			ports: func(s functions.Sysfs, pf string) {
				port(s, pf, "ens1f0", "1")
				port(s, pf, "ens1f0d1", "0")
			},
		},
		{
			name: "an InfiniBand port without link",
			ports: func(s functions.Sysfs, pf string) {
				ibPort(s, pf, "1", "4: ACTIVE", "5: LinkUp")
				ibPort(s, pf, "2", "1: DOWN", "3: Disabled")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := functions.New()
			s.PF(0x81, "ens1f0", 2, nil)
			s.PF(0x82, "ens2", 2, nil)
			c.ports(s, "0000:81:00.0")
			port(s, "0000:82:00.0", "ens2", "0")
			n := nodeOf(t, s.FS())
			n.write(t, "config.json", pool(`"pfNames": ["ens1f0", "ens2"]`))
			kubelet, cmd, log := n.start(t)
			plugin := kubelettest.Await(t, kubelet.Plugins)
			healthy := healthyOf(kubelettest.Await(t, plugin.Lists))
			for slices.Contains(healthy, "0000:82:00.1") {
				healthy = healthyOf(kubelettest.Await(t, plugin.Lists))
			}
			end(t, cmd)
			if want := []string{"0000:81:00.1", "0000:81:00.2"}; !slices.Equal(healthy, want) {
				t.Errorf("healthy are %v of both; want %v:\n%s", healthy, want, log)
			}
		})
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

// ibPort adds a port of the RDMA device of a PF, as functions.PF names it.
func ibPort(s functions.Sysfs, pf, number, state, physical string) {
	folder := functions.Dir(pf) + "/infiniband/mlx5_1290/ports/" + number
	s.Write(folder+"/state", state)
	s.Write(folder+"/phys_state", physical)
	s.Write(folder+"/link_layer", "InfiniBand")
}
