// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/golden"
)

// resourceSlices parses the command's output.
func resourceSlices(t *testing.T, flags ...string) (objects []resourceapi.ResourceSlice) {
	t.Helper()
	written := succeed(t, append([]string{"topo", "-o", "resourceslices"}, flags...)...)
	for text := range strings.SplitSeq(written, "---\n") {
		var object resourceapi.ResourceSlice
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatalf("%v of\n%s", err, text)
		}
		objects = append(objects, object)
	}
	return objects
}

func TestTopoResourceSlices(t *testing.T) {
	t.Parallel()
	const machine = "nv-a100pcie-cx6dx-vf-partial"
	golden.Check(t, "testdata/topo-slices-"+machine+".yaml",
		succeed(t, "topo", "-o", "resourceslices", "--no-counters", "--machine", recorded(machine)))
	objects := resourceSlices(t, "--machine", recorded(machine))
	if len(objects) != 2 || len(objects[0].Spec.SharedCounters) != 2 || len(objects[1].Spec.Devices) != 19 {
		t.Fatalf("%d objects: want one with counters and one with 12 pairs, 4 GPUs and 3 VFs", len(objects))
	}
	for i, object := range objects {
		spec := object.Spec
		if spec.Driver != "tandem.dev" || *spec.NodeName != machine || spec.Pool.Name != machine ||
			spec.Pool.ResourceSliceCount != 2 || object.Kind != "ResourceSlice" {
			t.Errorf("object %d is %+v", i, spec.Pool)
		}
	}
}

func TestTopoResourceSlicesOfAConfiguration(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.json")
	const text = `{"resourceList": [{"resourceName": "one", "selectors": [{"rootDevices": ["0000:9a:00.0"]}]}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	machine := recorded("nv-a100pcie-cx6dx-vf-partial")
	for _, d := range resourceSlices(t, "--config", config, "--machine", machine)[1].Spec.Devices {
		kind, resource := *d.Attributes["type"].StringValue, *d.Attributes["resource"].StringValue
		if kind == "vf" && resource != "intel.com/one" {
			t.Errorf("%s is of %s", d.Name, resource)
		}
	}
	code, out, stderr := run("topo", "-o", "resourceslices", "--config", config, "--vfs-per-pf", "1",
		"--machine", machine)
	if code != 0 || !strings.Contains(out, "name: vf-9a-00-2") || strings.Contains(out, "name: vf-9a-00-3") {
		t.Errorf("one VF of a PF: exit code %d\n%s", code, out)
	}
	if want := "note: 1 of 2 VFs are published"; !strings.Contains(stderr, want) {
		t.Errorf("got %q, want %q", stderr, want)
	}
}

func TestTopoResourceSlicesFlags(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--no-counters":                     "--no-counters belongs to -o resourceslices",
		"-o json --vfs-per-pf 3":            "--vfs-per-pf belongs to -o resourceslices",
		"-o resourceslices --vfs-per-pf -1": "--vfs-per-pf -1: want 0, for all, or more",
		"-o resourceslices --devices a":     "--devices belongs to -o nccl",
	} {
		code, _, stderr := run(append([]string{"topo"}, strings.Fields(flags)...)...)
		if code != cli.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q", flags, code, stderr)
		}
	}
}
