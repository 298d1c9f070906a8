// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// mi300x turns the parent function of a render node into an MI300X, in the files of amdgpu and amdkfd.
func (l *identity) mi300x(render string, index, count int) {
	function := l.place(filepath.Dir(filepath.Dir(render))) // devices/pci…/<address>
	address := filepath.Base(function)
	for name, content := range map[string]string{
		"vendor": "0x1002", "device": "0x74a1", "class": "0x120000",
		"current_compute_partition": "SPX", "current_memory_partition": "NPS1",
	} {
		l.file(filepath.Join(function, name), content)
	}
	l.link(function+"/driver", "bus/pci/drivers/amdgpu")
	l.link("bus/pci/drivers/amdgpu/"+address, function)
	// The card's bridge pair.
	l.file(filepath.Dir(function)+"/vendor", "0x1002")
	l.file(filepath.Dir(function)+"/device", "0x1501")
	l.file(filepath.Dir(filepath.Dir(function))+"/vendor", "0x1022")
	l.file(filepath.Dir(filepath.Dir(function))+"/device", "0x1500")
	l.kfd(address, strings.TrimPrefix(filepath.Base(render), "renderD"), index, count)
}

// kfd adds the KFD node of a GPU, with an XGMI link to every other one. Nodes 0 and 1 are the CPUs.
func (l *identity) kfd(address, minor string, index, count int) {
	const nodes = "class/kfd/kfd/topology/nodes/"
	if index == 0 {
		l.link("module/amdgpu/drivers/pci:amdgpu", "bus/pci/drivers/amdgpu")
		l.file(nodes+"0/properties", "cpu_cores_count 2\nsimd_count 0")
		l.file(nodes+"1/properties", "cpu_cores_count 2\nsimd_count 0")
	}
	own := nodes + strconv.Itoa(index+2)
	fields := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	var numbers []uint64
	for _, field := range fields {
		number, err := strconv.ParseUint(field, 16, 32)
		l.keep(err)
		numbers = append(numbers, number)
	}
	l.file(own+"/gpu_id", strconv.Itoa(1000+index))
	l.file(own+"/properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count 1216\nvendor_id 4098\n"+
		"device_id 29857\nlocation_id %d\ndomain %d\ndrm_render_minor %s",
		numbers[1]<<8|numbers[2]<<3, numbers[0], minor))
	link := 0
	for other := range count {
		if other != index {
			l.file(fmt.Sprintf("%s/io_links/%d/properties", own, link),
				fmt.Sprintf("type 11\nnode_from %d\nnode_to %d\nweight 15", index+2, other+2))
			link++
		}
	}
}
