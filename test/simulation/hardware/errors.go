// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/tandem-k8s/tandem/topology"
)

// errorFiles are the files with the PCI Express errors of a function that the simulation counts.
var errorFiles = map[string]bool{"aer_dev_fatal": true, "aer_dev_nonfatal": true}

// countError counts an error of a function. The plugins read the counters themselves.
func (h *Machine) countError(function topology.Address, file string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors[path.Join("bus/pci/devices", function.String(), file)]++
}

// errorFile is an open file with a counter.
type errorFile struct {
	machine *Machine
	name    string
	read    bool // since the last Seek
}

// Read returns the present content, once.
func (f *errorFile) Read(to []byte) (int, error) {
	if f.read {
		return 0, io.EOF
	}
	f.read = true
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return copy(to, fmt.Sprintln("TOTAL", f.machine.errors[f.name])), nil
}

// Seek goes to the start.
func (f *errorFile) Seek(int64, int) (int64, error) {
	f.read = false
	return 0, nil
}

// Stat returns an error: nobody asks.
func (f *errorFile) Stat() (fs.FileInfo, error) {
	return nil, &fs.PathError{Op: "stat", Path: f.name, Err: fs.ErrInvalid}
}

// Close does nothing.
func (*errorFile) Close() error { return nil }
