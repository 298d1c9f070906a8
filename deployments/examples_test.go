package deployments_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the examples")

// example is what the Jobs in examples differ in.
type example struct {
	Vendor, Resource, Env, Nodes string
	Size                         int
}

func (e example) file() string {
	return fmt.Sprintf("examples/%s-%dx%d.yaml", e.Vendor, e.Size, e.Size)
}

func examples() []example {
	var list []example
	for _, size := range []int{1, 2, 4, 8} {
		list = append(list,
			example{"amd", gpuResource, "^PCIDEVICE_", "/dev/dri/renderD*", size},
			example{"nvidia", "nvidia.com/gpu", "^(PCIDEVICE|NVIDIA_VISIBLE_DEVICES)", "/dev/nvidia[0-9]*", size})
	}
	return list
}

// TestExamplesAreAlike keeps the Jobs from drifting apart; -update writes them.
func TestExamplesAreAlike(t *testing.T) {
	job, err := template.ParseFiles("testdata/job.yaml.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples() {
		var want bytes.Buffer
		if err := job.Execute(&want, e); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(e.file(), want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(e.file())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(got)); diff != "" {
			t.Errorf("%s (-template +file; -update writes it):\n%s", e.file(), diff)
		}
	}
}
