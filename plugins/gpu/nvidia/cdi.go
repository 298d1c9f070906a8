// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"crypto/sha256"
	"log/slog"
	"os"

	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// sum is the hash of a text.
type sum [sha256.Size]byte

// written has the hashes of a specification that was written to a file.
type written struct {
	asked sum // of the specification
	has   sum // of the written file
}

// intact reports whether the file is unchanged.
func (w written) intact(file string) bool {
	now, ok := sumOf(file)
	return ok && now == w.has
}

// sumOf returns the sum of a file; false if the file is unreadable.
func sumOf(file string) (sum, bool) {
	content, err := os.ReadFile(file)
	return sha256.Sum256(content), err == nil
}

const (
	cdiVendor  = "k8s.device-plugin.nvidia.com"
	cdiGPU     = "gpu"
	cdiChannel = "imex-channel"
)

// qualified returns the full name of a CDI device.
func qualified(class, name string) string { return cdiVendor + "/" + class + "=" + name }

// specs describes the CDI specifications to write.
type specs struct {
	config   *settings.Config
	channels []channel
	uuids    []string // of the responsive GPUs and MIG devices with nodes
	complete bool     // all GPUs and MIG devices answer and have nodes
	dir      string
	log      *slog.Logger
	before   map[string]written // by path
	files    map[string]written // set to the current ones, by path
	first    bool               // missing devices have not been logged yet
}

// modes returns the enabled additional CDI devices of GPUs, in the order for containers.
func (s specs) modes() []string {
	var list []string
	for _, m := range []struct {
		name    string
		enabled bool
	}{{"gdrcopy", s.config.GDRCopy}, {"gds", s.config.GDS}, {"mofed", s.config.MOFED}} {
		if m.enabled {
			list = append(list, m.name)
		}
	}
	return list
}
