// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/topology"
)

// A topology file written by topo on one machine places the same devices of a guest without visible switches,
// for topo and plan.
func TestTopologyFile(t *testing.T) {
	t.Parallel()
	file := write(t, "topo.xml", `<system version="1"><cpu numaid="0">
<pci busid="ffff:ff:01.0"><pci busid="0000:05:00.0"/><pci busid="0000:14:00.0"/></pci></cpu></system>`)
	guest := withVFs(t, "nv-h200-vm-flat", 1)
	distance := func(args ...string) topology.Level {
		t.Helper()
		var m machine.Matrix
		text := succeed(t, append([]string{"topo", "-o", "json", "--machine", guest}, args...)...)
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m.Distances[7].Distance // of the first GPU and the last NIC
	}
	if before, after := distance(), distance("--topology-file", file); before != topology.PHB ||
		after != topology.PIX {
		t.Errorf("%s without the file, %s with it", before, after)
	}
	planned := succeed(t, "plan", "--gpus", "1", "--vfs", "1", "--machine", guest, "--topology-file", file)
	if !strings.Contains(planned, "0000:05:00.0  0000:14:00.1  PIX") {
		t.Errorf("planned\n%s", planned)
	}
	code, _, stderr := run("plan", "--gpus", "1", "--machine", guest, "--topology-file", guest)
	if code != cli.ExitError || !strings.HasPrefix(stderr, "tandem plan: read topology file "+guest+": ") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// A topology file has the whole node, or the named devices.
func TestTopoNCCL(t *testing.T) {
	t.Parallel()
	whole := succeed(t, "topo", "-o", "nccl", "--machine", recorded("oci-mi300x-derived"))
	golden.Check(t, "testdata/topo-oci-mi300x-derived.xml", whole)
	part := succeed(t, "topo", "-o", "nccl", "--machine", recorded("oci-mi300x-derived"), "--devices",
		"0000:11:00.0,0000:0c:00.0")
	if strings.Count(part, "<pci ") != 3 || strings.Count(whole, "<pci ") != 24 {
		t.Errorf("the part:\n%s", part)
	}
	for args, want := range map[string]string{
		"topo --devices 0000:11:00.0": "tandem topo: --devices belongs to -o nccl; see",
		"topo -o nccl --devices GPU0": `tandem topo: --devices: parse PCI address "GPU0"`,
		"topo -o nccl --devices 0000:fe:00.0 --machine " + recorded("oci-mi300x-derived"): "" +
			"tandem topo: write topology file: this machine has no PCI function 0000:fe:00.0",
		"topo -o nccl --devices container --machine " + recorded("nv-h800-8x8"): "" +
			"tandem topo: find the container's devices: it has none",
	} {
		if code, _, stderr := run(strings.Fields(args)...); code == cli.ExitOK || !strings.HasPrefix(stderr, want) {
			t.Errorf("tandem %s: exit code %d, %q", args, code, stderr)
		}
	}
}

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
