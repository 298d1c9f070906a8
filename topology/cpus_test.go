// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/topology"
)

func TestCPUSet(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "0": "0", "0-3,8": "0-3,8", "8,0-1,2-3\n": "0-3,8", "5,3": "3,5",
	} {
		set, err := topology.ParseCPUSet(list)
		if err != nil || set.String() != want {
			t.Errorf("%q: %q, %v, want %q", list, set, err, want)
		}
	}
	for _, list := range []string{"a", "3-1", "-1", "0-99999999", "1,,2"} {
		if set, err := topology.ParseCPUSet(list); err == nil {
			t.Errorf("%q passes as %v", list, set)
		}
	}
}

func TestCPUs(t *testing.T) {
	sys := fstest.MapFS{
		"devices/system/node/node0/cpulist":  {Data: []byte("0-3,8\n")},
		"devices/system/node/node12/cpulist": {Data: []byte("4-7\n")},
		"devices/system/node/online":         {Data: []byte("0,12\n")},
	}
	nodes, err := topology.CPUs(sys)
	if err != nil || len(nodes) != 2 || nodes[0].String() != "0-3,8" || nodes[12].String() != "4-7" {
		t.Errorf("CPUs %v, %v", nodes, err)
	}
	if rest := nodes[0].Without(topology.CPUSet{1: true}).String(); rest != "0,2-3,8" {
		t.Errorf("without 1: %s", rest)
	}
	sys["devices/system/node/node0/cpulist"].Data = []byte("many")
	if nodes, err := topology.CPUs(sys); nodes != nil || err == nil {
		t.Errorf("CPUs %v, %v of a list that is none", nodes, err)
	}
	sys["devices/system/node/node0/cpulist/is"] = &fstest.MapFile{} // a folder cannot be read
	delete(sys, "devices/system/node/node0/cpulist")
	if nodes, err := topology.CPUs(sys); nodes != nil || err == nil {
		t.Errorf("CPUs %v, %v of a list that cannot be read", nodes, err)
	}
	for name, without := range map[string]fstest.MapFS{
		"NUMA nodes": {}, "a list": {"devices/system/node/node0": {Mode: fs.ModeDir}},
	} {
		if nodes, err := topology.CPUs(without); nodes != nil || err != nil {
			t.Errorf("CPUs %v, %v without %s", nodes, err, name)
		}
	}
}
