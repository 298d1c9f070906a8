// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"crypto/sha256"
	"log/slog"
	"os"
	"path"

	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// sum is what a text has in it.
type sum [sha256.Size]byte

// written is a specification that was written to a file.
type written struct {
	asked sum // it, as it was to be written
	has   sum // the file, as it was written
}

// intact reports whether the file is as it was written.
func (w written) intact(file string) bool {
	now, ok := sumOf(file)
	return ok && now == w.has
}

// sumOf is the sum of a file; false where it cannot be read.
func sumOf(file string) (sum, bool) {
	content, err := os.ReadFile(file)
	return sha256.Sum256(content), err == nil
}

const (
	cdiVendor  = "k8s.device-plugin.nvidia.com"
	cdiGPU     = "gpu"
	cdiChannel = "imex-channel"
)

// qualified is the full name of a CDI device.
func qualified(class, name string) string { return cdiVendor + "/" + class + "=" + name }

// specs says which CDI specifications to write, and how.
type specs struct {
	config   *settings.Config
	channels []channel
	uuids    []string // of the GPUs and MIG devices that answer
	complete bool     // those are all there are
	dir      string
	log      *slog.Logger
	before   map[string]written // by path
	files    map[string]written // is given those that there are now, by path
	first    bool               // nobody has been told yet of what is not there
}

// modes are what GPUs can be given beside the GPUs themselves, in the order in which containers get them.
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

// devRoot is where this process finds the driver's device nodes: below the driver root if that has any.
func (s specs) devRoot() string {
	if info, err := os.Stat(path.Join(s.config.ContainerDriverRoot, "dev")); err == nil && info.IsDir() {
		return s.config.ContainerDriverRoot
	}
	return "/"
}
