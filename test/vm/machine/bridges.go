// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"
)

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
