// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// Both machines have two sockets with the same switches.
const (
	sockets = 2
	cores   = 2    // of a socket; more wait for each other, since the host has no more
	memory  = 2560 // MiB; from 2816 on the firmware lacks room below 4 GiB for so many bridges
)

// Shape is the construction of a kind of server, with one switch below every root bus.
type Shape struct {
	Name      string
	Server    string // machine in test/machines with the same tree; "" for none
	Resource  string // of the GPUs
	vendor    string // identity of the display devices: amd or nvidia
	buses     []int  // root bus of every switch, the same number of them on each socket
	perSwitch int    // GPUs, and as many NICs
	below     func(b *bridges, n int)
}

// GPUs returns the number of GPUs, which is also the number of NICs.
func (s Shape) GPUs() int { return len(s.buses) * s.perSwitch }

// MI300X has the tree of a server with eight MI300X, including bus numbers: one GPU and one NIC share a
// switch, each behind a further switch, and the card contains two bridges.
var MI300X = Shape{
	Name: "MI300X", Server: "oci-mi300x-derived", Resource: "amd.com/gpu", vendor: "amd",
	buses: []int{0x07, 0x25, 0x3c, 0x53, 0x81, 0xa0, 0xb8, 0xd0}, perSwitch: 1,
	below: func(b *bridges, n int) {
		b.add("xio3130-downstream", "nicside", "switch")
		b.add("xio3130-downstream", "gpuside", "switch")
		b.add("x3130-upstream", "nicswitch", "nicside")
		b.add("xio3130-downstream", "nicport", "nicswitch")
		b.nic(n, "nicport")
		b.add("x3130-upstream", "gpuswitch", "gpuside")
		b.add("xio3130-downstream", "gpuport", "gpuswitch")
		b.add("x3130-upstream", "card", "gpuport")
		b.add("xio3130-downstream", "cardport", "card")
		b.gpu("cardport")
	},
}

// H100 has two GPUs and two NICs on each of four switches.
var H100 = Shape{
	Name: "H100", Resource: "nvidia.com/gpu", vendor: "nvidia",
	buses: []int{0x15, 0x37, 0x95, 0xb7}, perSwitch: 2,
	below: func(b *bridges, n int) {
		for i := range 2 {
			port := "nicport" + strconv.Itoa(i)
			b.add("xio3130-downstream", port, "switch")
			b.nic(2*n+i, port)
		}
		for i := range 2 {
			port := "gpuport" + strconv.Itoa(i)
			b.add("xio3130-downstream", port, "switch")
			b.gpu(port)
		}
	},
}

// bridges are the bridges below one root bus. Names are unique there.
type bridges struct {
	id     string
	number int // slots have numbers that are unique in the machine
	args   []string
}

func (b *bridges) device(format string, args ...any) {
	b.args = append(b.args, "-device", fmt.Sprintf(format, args...))
}

func (b *bridges) add(kind, name, bus string) {
	slot := ""
	if !strings.HasSuffix(kind, "upstream") {
		b.number++
		slot = fmt.Sprintf(",chassis=%d,slot=%d", b.number, b.number%32)
	}
	b.device("%s,id=%s%s,bus=%s%s%s", kind, b.id, name, b.id, bus, slot)
}

// nic adds a NIC with its cable to the hub of all NICs.
func (b *bridges) nic(n int, bus string) {
	b.args = append(b.args, "-netdev", fmt.Sprintf("hubport,id=nic%d,hubid=0", n))
	b.device("igb,netdev=nic%d,bus=%s%s,romfile=", n, b.id, bus)
}

func (b *bridges) gpu(bus string) { b.device("virtio-gpu-pci,bus=%s%s", b.id, bus) }
