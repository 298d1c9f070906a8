// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing/fstest"
)

// sysfs is a machine under construction. Files hold a line; links are written as "-> target".
type sysfs map[string]string

func (s sysfs) fs() fstest.MapFS {
	m := fstest.MapFS{}
	for path, content := range s {
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			m[path] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(target)}
		} else {
			m[path] = &fstest.MapFile{Mode: 0o444, Data: []byte(content + "\n")}
		}
	}
	return m
}

// add adds everything of other.
func (s sysfs) add(other sysfs) sysfs {
	maps.Copy(s, other)
	return s
}

// function is a PCI function that amdgpu drives, with the named files and DRM minors.
func function(address, numa string, drm ...string) sysfs {
	dir := "devices/pci0000:00/" + address
	s := sysfs{
		"module/amdgpu/drivers/pci:amdgpu":  "-> ../../../bus/pci/drivers/amdgpu",
		"bus/pci/drivers/amdgpu/" + address: "-> ../../../../" + dir,
		"bus/pci/drivers/amdgpu/bind":       "",
		dir + "/vendor":                     "0x1002",
	}
	if numa != "" {
		s[dir+"/numa_node"] = numa
	}
	return s.add(minors(dir, drm...))
}

func minors(dir string, drm ...string) sysfs {
	s := sysfs{}
	for _, name := range drm {
		s[dir+"/drm/"+name+"/dev"] = "226:0"
	}
	return s
}

// partitioned sets the partitioning of a function.
func partitioned(address, compute, memory string) sysfs {
	dir := "devices/pci0000:00/" + address
	return sysfs{dir + "/current_compute_partition": compute, dir + "/current_memory_partition": memory}
}

// cpuNode and gpuNode are KFD nodes.
func cpuNode(number int) sysfs {
	return sysfs{
		kfdFile(number, "properties"): "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndrm_render_minor 0",
	}
}

func gpuNode(number, domain, location, render int) sysfs {
	return sysfs{kfdFile(number, "properties"): fmt.Sprintf(
		"cpu_cores_count 0\nsimd_count 152\nvendor_id 4098\nlocation_id %d\ndomain %d\n"+
			"drm_render_minor %d\nunique_id 12345678901234567890\nnum_xcc 1",
		location, domain, render)}
}

func kfdFile(number int, file string) string {
	return fmt.Sprintf("class/kfd/kfd/topology/nodes/%d/%s", number, file)
}

// link is a KFD link.
func link(folder string, from, index, to, kind, weight, least, most int) sysfs {
	return sysfs{kfdFile(from, fmt.Sprintf("%s/%d/properties", folder, index)): fmt.Sprintf(
		"type %d\nversion_major 0\nnode_from %d\nnode_to %d\nweight %d\n"+
			"min_bandwidth %d\nmax_bandwidth %d\nflags 1",
		kind, from, to, weight, least, most)}
}

// twoCards is a node with a whole GPU on NUMA node 0 and one in four parts on node 1, of which the last is
// not in KFD.
func twoCards() sysfs {
	return sysfs{}.
		add(function("0000:19:00.0", "0", "card1", "renderD128")).
		add(function("0000:a7:00.0", "1", "card2", "renderD129", "controlD65")).
		add(minors("devices/platform/amdgpu_xcp_0", "card3", "renderD130")).
		add(minors("devices/platform/amdgpu_xcp.3", "card5", "renderD132")).
		add(minors("devices/platform/amdgpu_xcp_4", "card6", "renderD133")).
		add(minors("devices/platform/serial8250", "card9", "renderD140")).
		add(cpuNode(0)).
		add(gpuNode(1, 0, 0x1900, 128)).
		add(gpuNode(2, 0, 0xa700, 129)).
		add(gpuNode(3, 0, 0xa701, 130)).
		add(gpuNode(4, 0, 0xa703, 132))
}
