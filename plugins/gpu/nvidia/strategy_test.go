// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// write writes a configuration file.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestNoStrategy: null is nothing said, and an empty list is no way at all to tell containers of their GPUs:
// they get what does not depend on a way.
func TestNoStrategy(t *testing.T) {
	t.Attr("parity", "nvidia/config-v1")
	for list, want := range map[string]map[string]string{
		"null": {"NVIDIA_GDS": "enabled", visibleDevices: "GPU-1"},
		"[]":   {"NVIDIA_GDS": "enabled"},
	} {
		config, err := load(t, nil, nil,
			"flags: {gdsEnabled: true, plugin: {passDeviceSpecs: true, deviceListStrategy: "+list+"}}")
		if err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		b := &Backend{config: config, machine: Machine{DevRoot: t.TempDir()}}
		answer := b.Edits([]gpu.Device{{ID: "GPU-1", Nodes: []string{"/dev/nvidia0"}}})
		if !maps.Equal(answer.Env, want) || (len(answer.Nodes) > 0) != (list == "null") ||
			len(answer.Mounts)+len(answer.Named.Devices) > 0 {
			t.Errorf("%s: %v", list, answer)
		}
	}
}
