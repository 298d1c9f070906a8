// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// wire is the network of the VFs: all NICs are on one hub, and the VFs' netdevs are the node's.
type wire struct{ *cluster.Node }

// connecting gives an address to each VF. The kernel would deliver packets between two of its own addresses
// itself, and the queue pairs would not connect ("Failed to modify QP to RTR"). With a routing table for each
// VF before the table of local addresses, packets leave through the VF and enter through the other one.
const connecting = `set -e
number=10
for vf in %s; do
	function=/sys/bus/pci/devices/$vf
	netdev=$(ls $function/net)
	/bin/ip link set $(ls $function/physfn/net) up
	/bin/ip link set $netdev up
	/bin/ip address add 192.168.77.$number/24 dev $netdev
	for setting in accept_local=1 arp_ignore=1 arp_announce=2; do
		echo ${setting#*=} >/proc/sys/net/ipv4/conf/$netdev/${setting%%=*}
	done
	/bin/ip route add 192.168.77.0/24 dev $netdev table $((100 + number))
	/bin/ip rule add pref 1 oif $netdev lookup $((100 + number))
	number=$((number + 1))
done
/bin/ip rule add pref 2 lookup local
/bin/ip rule del pref 0
`

// awaiting waits until the ports of VFs are active: the link of a VF follows its NIC's.
const awaiting = `for vf in %s; do
	netdev=$(ls /sys/bus/pci/devices/$vf/net)
	device=$(grep -lx $netdev /sys/class/infiniband/*/parent)
	until grep -q ACTIVE ${device%%/parent}/ports/1/state; do sleep 0.5; done
done
`

// connect connects the VFs of pods, and waits for their ports.
func (w *wire) connect(ctx context.Context, pods ...holder) error {
	var vfs []string
	for _, h := range pods {
		vfs = append(vfs, h.vfs()...)
	}
	list := strings.Join(vfs, " ")
	_, err := w.Run(ctx, fmt.Sprintf(connecting, list)+fmt.Sprintf(awaiting, list))
	return err
}

// turn sets the port of a VF up or down.
func (w *wire) turn(ctx context.Context, vf, state string) error {
	_, err := w.Run(ctx, fmt.Sprintf("/bin/ip link set $(ls /sys/bus/pci/devices/%s/net) %s", vf, state))
	return err
}

// Counters of a VF's netdev and of the RDMA device over the netdev.
const (
	sentBytes   = "/sys/class/net/$netdev/statistics/tx_bytes"
	sentPackets = "$(dirname $(grep -lx $netdev /sys/class/infiniband/*/parent))/ports/1/hw_counters/sent_pkts"
)

// packet is the most bytes of data in an RDMA packet on Ethernet with an MTU of 1500.
const packet = 1024

// read returns a counter of a pod's VFs, by VF.
func (w *wire) read(ctx context.Context, h holder, counter string) (map[string]uint64, error) {
	output, err := w.Run(ctx, fmt.Sprintf(`for vf in %s; do
		netdev=$(ls /sys/bus/pci/devices/$vf/net)
		echo $vf $(cat %s)
	done`, strings.Join(h.vfs(), " "), counter))
	if err != nil {
		return nil, err
	}
	count := map[string]uint64{}
	for line := range strings.Lines(output) {
		vf, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if count[vf], err = strconv.ParseUint(value, 10, 64); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", counter, vf, err)
		}
	}
	return count, nil
}

// sent returns the increase of a counter of a pod's VFs during do, by VF.
func (w *wire) sent(
	ctx context.Context, h holder, counter string, do func() error,
) (map[string]uint64, error) {
	before, err := w.read(ctx, h, counter)
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, err := w.read(ctx, h, counter)
	for vf := range after {
		after[vf] -= before[vf]
	}
	return after, err
}

// vfs returns the addresses of a pod's VFs in the order of its variable.
func (h holder) vfs() (addresses []string) {
	for _, v := range h.saw.Containers {
		for _, path := range v.VFs {
			addresses = append(addresses, filepath.Base(path))
		}
	}
	return addresses
}
