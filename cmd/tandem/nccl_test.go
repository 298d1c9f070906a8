// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
)

// The devices of a container are those that verify finds.
func TestContainerFunctions(t *testing.T) {
	p := newPod(t, "oci-mi300x-derived", 1).amd("0000:11:00.0").vfs("0000:0c:00.1")
	n, err := machine.Read(&machine.Source{SysfsRoot: p.path("sys")})
	if err != nil {
		t.Fatal(err)
	}
	c := &verify.Check{SysfsRoot: p.path("sys"), DevRoot: p.path("dev"), ProcRoot: p.path("proc")}
	for name, value := range p.env {
		c.Environment = append(c.Environment, name+"="+value)
	}
	functions, err := c.Functions(n.Sys, n.Tree)
	if err != nil || len(functions) != 2 || functions[0].String() != "0000:11:00.0" ||
		functions[1].String() != "0000:0c:00.1" {
		t.Errorf("%v, %v", functions, err)
	}
	c.Environment = []string{"PCIDEVICE_X=0000:fe:00.0"}
	if functions, err := c.Functions(n.Sys, n.Tree); err == nil ||
		!strings.Contains(err.Error(), "PCIDEVICE_X names 0000:fe:00.0") {
		t.Errorf("%v, %v", functions, err)
	}
}
