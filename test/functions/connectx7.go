// SPDX-License-Identifier: Apache-2.0

package functions

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Bridges are the functions of ConnectX7 that manage the NVSwitches of an HGX B200.
var Bridges = []string{"0000:73:00.0", "0000:73:00.1"}

// ConnectX7 returns a machine with a GPU and three ConnectX-7 functions, 0000:75:00.0 and [Bridges]. The
// node's fabric manager needs the functions named as bridges, which only differ from a NIC in their Vital
// Product Data: SMDL=SW_MNG in the keyword VA.
func ConnectX7(bridges ...string) Sysfs {
	s := New()
	s.Function("0000:76:00.0", Facts{
		"class": "0x030200", "vendor": "0x10de", "device": "0x2901", "driver": "nvidia",
	})
	for i, address := range append(slices.Clone(Bridges), "0000:75:00.0") {
		s.Function(address, Facts{"class": "0x020700", "device": "0x1021", "rdma": fmt.Sprint("mlx5_", i)})
		board := "MODL=CX7"
		if slices.Contains(bridges, address) {
			board = "SMDL=SW_MNG:MODL=CX7"
		}
		s.vpd(address, "PN", "TEST", "SN", "1234", "VA", board)
	}
	return s
}

// vpd adds Vital Product Data with keywords and their values (PCI Local Bus Specification 3.0, appendix I).
func (s Sysfs) vpd(address string, keywords ...string) {
	const readOnly, end = 0x90, 0x78 // tags
	var content []byte
	for pair := range slices.Chunk(keywords, 2) {
		content = append(append(content, pair[0]...), byte(len(pair[1])))
		content = append(content, pair[1]...)
	}
	head := binary.LittleEndian.AppendUint16([]byte{readOnly}, uint16(len(content)))
	s.Write(Dir(address)+"/vpd", string(append(append(head, content...), end)))
}
