// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/test/golden"
)

func TestTopoJSON(t *testing.T) {
	t.Parallel()
	golden.Check(t, "testdata/topo-nv-a100pcie-cx6dx-vf-partial.json",
		succeed(t, "topo", "-o", "json", "--machine", recorded("nv-a100pcie-cx6dx-vf-partial")))
	golden.Check(t, "testdata/topo-oci-mi300x-derived.json",
		succeed(t, "topo", "-o", "json", "--machine", recorded("oci-mi300x-derived")))
}

// colours collects the coloured words of texts.
type colours struct {
	words []string
}

// inColour finds the coloured words of a text.
var inColour = regexp.MustCompile(`\x1b\[(3\d)m(.*?)\x1b\[0m`)

// strip returns a text without its colours.
func (c *colours) strip(text string) string {
	names := map[string]string{"31": "red", "32": "green", "33": "yellow"}
	for _, match := range inColour.FindAllStringSubmatch(text, -1) {
		c.words = append(c.words, names[match[1]]+" "+match[2])
	}
	return inColour.ReplaceAllString(text, "$2")
}

// check fails the test unless these words were coloured, separated by commas.
func (c *colours) check(t *testing.T, want string) {
	t.Helper()
	slices.Sort(c.words)
	if diff := cmp.Diff(want, strings.Join(slices.Compact(c.words), ", ")); diff != "" {
		t.Errorf("coloured words (-want +got):\n%s", diff)
	}
}

// TestColorFlag: --color decides about the text for people, and never changes a document.
func TestColorFlag(t *testing.T) {
	t.Parallel()
	machine := recorded("oci-mi300x-derived")
	for _, c := range []struct {
		args     string
		coloured bool
	}{
		{"plan --gpus 1 --vfs 1", false},
		{"plan --gpus 1 --vfs 1 --color=never", false},
		{"--color=always plan --gpus 1 --vfs 1", true},
		{"plan --gpus 1 --vfs 1 --color always", true},
		{"plan --gpus 1 --vfs 1 --color=always -o json", false},
		{"plan --gpus 1 --vfs 1 --color=always -o svg", false},
		{"doctor --color=always", true},
		{"doctor --color=always -o json", false},
		{"topo --color=always", false},
	} {
		_, stdout, stderr := run(append(strings.Fields(c.args), "--machine", machine)...)
		if got := strings.Contains(stdout, "\x1b["); got != c.coloured || stdout == "" {
			t.Errorf("tandem %s: coloured is %t\n%s%s", c.args, got, stdout, stderr)
		}
	}
	code, _, stderr := run("topo", "--color=alway")
	if code != cli.ExitUsage || !strings.Contains(stderr, "want auto, always or never (did you mean always?)") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// The devices of a container are those that verify finds.
func TestContainerFunctions(t *testing.T) {
	p := newPod(t, "oci-mi300x-derived", 1).amd("0000:11:00.0").vfs("0000:0c:00.1")
	n, err := machine.Read(&machine.Source{SysfsRoot: p.path("sys")})
	ready(t, err)
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
