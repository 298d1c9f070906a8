// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// at is where a device of this machine is: below a switch of a socket, at a depth of its own.
func at(socket, port, device string) string {
	return "/sys/devices/pci0000:" + socket + "/0000:" + socket + ":" + port + "/0000:" + socket + "/0000:" +
		device
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		name      string
		gpus, vfs []string
		want      int
	}{
		{"one switch", []string{at("20", "00.0", "28:00.0")}, []string{at("20", "00.0", "25:10.0")}, 1},
		{"two root ports of a socket", []string{at("20", "00.0", "28:00.0")},
			[]string{at("20", "01.0", "2d:10.0")}, 0},
		{"two sockets", []string{at("20", "00.0", "28:00.0")}, []string{at("80", "00.0", "85:10.0")}, 0},
		{"two VFs of one NIC are one pair", []string{at("20", "00.0", "28:00.0"), at("20", "01.0", "30:00.0")},
			[]string{at("20", "00.0", "25:10.0"), at("20", "00.0", "25:10.2")}, 1},
		{"in another order", []string{at("20", "00.0", "28:00.0"), at("20", "01.0", "30:00.0")},
			[]string{at("20", "01.0", "2d:10.0"), at("20", "00.0", "25:10.0")}, 2},
		{"no VF", []string{at("20", "00.0", "28:00.0")}, nil, 0},
	} {
		if got := (&View{GPUs: c.gpus, VFs: c.vfs}).Pairs(); got != c.want {
			t.Errorf("%s: %d pairs, want %d", c.name, got, c.want)
		}
	}
}

func TestReadLook(t *testing.T) {
	var v View
	for line := range strings.Lines(
		`gpu renderD128 /sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:28:00.0
vf 0000:25:10.0 /sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:25:10.0
GPU           VF            DISTANCE

verified: 1 GPU, 1 VF, pairs in the order of the lists, pairs.json agrees
verify 0
`) {
		if last := v.read(strings.TrimSuffix(line, "\n")); last != strings.HasPrefix(line, "verify ") {
			t.Errorf("%q: last is %v", line, last)
		}
	}
	want := View{GPUs: []string{"/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:28:00.0"},
		VFs:      []string{"/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:25:10.0"},
		Verified: true, Verdict: "verified: 1 GPU, 1 VF, pairs in the order of the lists, pairs.json agrees"}
	if fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", v, want)
	}
}
