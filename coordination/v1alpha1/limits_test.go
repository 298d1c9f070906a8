// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
)

// large returns an object of maximum size.
func large() *Spec {
	s := &Spec{}
	for i := range 2 {
		s.Resources = append(s.Resources, Resource{
			Name: fmt.Sprint("example.com/r", i), Kind: GPU, Devices: MaxDevices / 2, Hints: map[string]Set{},
			Functions: make([]Set, MaxFunctions/2),
		})
		for node := range MaxDeviceNodes {
			s.Resources[i].Hints[fmt.Sprint(node)] = SetOf(node)
		}
	}
	for i := range MaxNUMANodes {
		s.NUMANodes = append(s.NUMANodes, NUMANode{Number: i})
	}
	for range MaxPlaces / 2 {
		s.Switches = append(s.Switches, Switch{
			Name: "a", Path: "pci0000:00" + strings.Repeat("/0000:00:01.0", MaxDepth-1), Below: make([]Below, 1),
		})
	}
	s.Links = make([]Link, MaxLinks)
	for range MaxContainers / 8 {
		s.Held = append(s.Held, Held{Containers: make([]Container, 2)})
	}
	return s
}

// Excessive and invalid values are refused first.
func TestValidate(t *testing.T) {
	t.Parallel()
	if err := large().Validate(); err != nil {
		t.Errorf("the largest object: %v", err)
	}
	for want, spoil := range map[string]func(*Spec){
		"devices of example.com/r0 1152921504606846976": func(s *Spec) { s.Resources[0].Devices = 1 << 60 },
		"devices of example.com/r0 -1":                  func(s *Spec) { s.Resources[0].Devices = -1 },
		"32769 devices":                                 func(s *Spec) { s.Resources[0].Devices++ },
		"16896 physical functions":                      func(s *Spec) { s.Resources[0].Functions = nil },
		"9 NUMA nodes with devices":                     func(s *Spec) { s.Resources[0].Hints["40"] = "0" },
		"65 NUMA nodes": func(s *Spec) {
			s.NUMANodes = append(s.NUMANodes, NUMANode{})
		},
		"NUMA node 64":               func(s *Spec) { s.NUMANodes[3].Number = 64 },
		"NUMA node 2 is there twice": func(s *Spec) { s.NUMANodes[3].Number = 2 },
		"257 switches": func(s *Spec) {
			s.Switches = append(s.Switches, Switch{})
		},
		"bridges of a path 64": func(s *Spec) {
			s.Switches[0].Path += s.Switches[0].Path + "/a/b"
		},
		"513 bytes of a path": func(s *Spec) { s.Switches[0].Path = strings.Repeat("a", MaxPath+1) },
		`switch "a": 600 bytes of a path`: func(s *Spec) {
			s.Switches[0].Below[0].Path = strings.Repeat("a", 600)
		},
		"redirecting bridges -1":               func(s *Spec) { s.Switches[0].Redirected = -1 },
		"switch \"a\": redirecting bridges -2": func(s *Spec) { s.Switches[0].Below[0].Redirected = -2 },
		"NUMA node -5":                         func(s *Spec) { s.Switches[0].NUMA = new(-5) },
		"2049 links":                           func(s *Spec) { s.Links = append(s.Links, Link{}) },
		"hops -1":                              func(s *Spec) { s.Links[0].Hops = -1 },
		"4097 pods":                            func(s *Spec) { s.Held = make([]Held, MaxPods+1) },
		"4097 containers": func(s *Spec) {
			s.Held = []Held{{Containers: make([]Container, MaxContainers+1)}}
		},
		"too large":        func(s *Spec) { s.Held = make([]Held, MaxPods) },
		"reserved CPUs -1": func(s *Spec) { s.Kubelet.ReservedCPUs = -1 },
		"33 resources": func(s *Spec) {
			s.Resources = make([]Resource, MaxResources+1)
		},
		"example.com/r1 is there twice": func(s *Spec) { s.Resources[0].Name = "example.com/r1" },
		`resource "cpu"`:                func(s *Spec) { s.Resources[0].Name = "cpu" },
		`resource "kubernetes.io/batch-cpu"`: func(s *Spec) {
			s.Resources[0].Name = "kubernetes.io/batch-cpu"
		},
		`resource "requests.x"`: func(s *Spec) { s.Resources[0].Name = "requests.x" },
	} {
		s := large()
		spoil(s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
