// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// TestTopoLimits: a recording beyond the limits of a machine is refused at once, with the exceeded limit.
func TestTopoLimits(t *testing.T) {
	t.Parallel()
	b := recording.NewBuilder()
	for i := range 1025 {
		address := fmt.Sprintf("%04x:%02x:00.0", i/256, i%256)
		place := fmt.Sprintf("devices/pci%04x:00/%s", i/256, address)
		b.File(place+"/class", "0x030200\n")
		b.File(place+"/vendor", "0x10de\n")
		b.Link("bus/pci/devices/"+address, "../../../"+place)
	}
	m, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := m.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	deep := "# tandem machine v1\n[a" + strings.Repeat("/a", 10_000_000) + "]\nend 1 entries\n"
	for name, c := range map[string]struct{ file, want string }{
		"/dev/zero": {"/dev/zero", "read machine /dev/zero: read machine file: larger than 32 MiB"},
		"cards": {
			write(t, "cards.txt", text.String()), "it has 1025 GPUs and 0 NICs, and 1024 of each are the most",
		},
		"deep": {write(t, "deep.txt", deep), "line 2: the path"},
	} {
		for _, command := range []string{"topo", "plan --gpus=1"} {
			code, stdout, stderr := run(append(strings.Fields(command), "--machine", c.file)...)
			if code != cli.ExitError || stdout != "" || !strings.Contains(stderr, c.want) || len(stderr) > 500 {
				t.Errorf("%s of %s: exit code %d, %.200q%.500q", command, name, code, stdout, stderr)
			}
		}
	}
}
