// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/topology/recording"
)

// hostile is a device name in a foreign recording.
const hostile = "mlx5_0\x1b]0;owned\x07\x1b[2J\u009b\u202e\nGPU9<script>"

// hostileMachine is a recording with a GPU and a NIC on one switch.
func hostileMachine(t *testing.T) string {
	t.Helper()
	b := recording.NewBuilder()
	const root = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
	for address, files := range map[string]map[string]string{
		root + "/0000:02:00.0/0000:03:00.0": {"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n"},
		root + "/0000:02:01.0/0000:04:00.0": {
			"class": "0x020000\n", "vendor": "0x15b3\n", "infiniband/mlx5_1/ports/1/state": "4: " + hostile,
			"infiniband/mlx5_1/ports/1/rate": hostile, "net/" + hostile + "/type": "1\n",
			"infiniband/" + hostile + "/ports/1/rate": hostile,
		},
	} {
		for name, content := range files {
			b.File(address+"/"+name, content)
		}
		b.Link("bus/pci/devices/"+filepath.Base(address), "../../../"+address)
	}
	return write(t, "m.txt", textOf(t, b))
}

// TestTextOfOthers: device names and states of a recording cannot control a terminal or break lines, and
// documents stay well-formed. A device with such a name is not shown.
func TestTextOfOthers(t *testing.T) {
	t.Parallel()
	file := hostileMachine(t)
	for _, format := range []string{
		"-o table", "-v", "-o json", "-o svg", "-o nccl", "-o resourceslices",
	} {
		out := succeed(t, append([]string{"topo", "--machine", file}, strings.Fields(format)...)...)
		if strings.ContainsAny(out, "\x1b\x07\u009b\u202e") {
			t.Errorf("%s has control characters: %q", format, out)
		}
		switch format {
		case "-o json":
			var document struct{ NICs []struct{ RDMA string } }
			if err := json.Unmarshal([]byte(out), &document); err != nil || document.NICs[0].RDMA != "mlx5_1" {
				t.Errorf("%s: %v, %+v", format, err, document)
			}
		case "-o svg", "-o nccl":
			wellFormed(t, format, out)
		case "-o resourceslices":
			if strings.Contains(out, "<script>\n") {
				t.Errorf("%s has the script of a name", format)
			}
		default:
			state := strings.Contains(out, `mlx5_0\u001b]0;owned\u0007\u001b[2J\u009b\u202e\u000aGPU9<script>`)
			if !strings.Contains(out, "mlx5_1") || state != (format == "-v") {
				t.Errorf("%s does not show the device, or shows the other one:\n%s", format, out)
			}
		}
	}
	for _, args := range [][]string{
		{"topo", "--machine", hostile}, {"\x1b[2J"}, {"topo", "--\x1b[2J"},
		{"plan", "--machine", file, "--gpus=x\x1b"},
	} {
		if _, stdout, stderr := run(args...); strings.Contains(stdout+stderr, "\x1b") || stderr == "" {
			t.Errorf("%q prints %q", args, stdout+stderr)
		}
	}
}

func wellFormed(t *testing.T, format, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s is not well-formed: %v", format, err)
			return
		}
	}
}
