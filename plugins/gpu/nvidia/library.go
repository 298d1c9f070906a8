// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// Machine is the location of the node's files.
type Machine struct {
	Sys     fs.FS         // /sys
	Proc    fs.FS         // /proc
	DevRoot string        // /dev
	CDIRoot string        // directory of CDI specifications, /var/run/cdi
	Recheck time.Duration // between two checks of a broken GPU; 0 means 30 s
}

// library is the used part of NVIDIA's driver: the state of all GPUs at once, and events. No method is called
// while the kubelet waits for an answer.
type library interface {
	// cards lists the GPUs in NVML's order. An unresponsive GPU is in the list with its err; the returned error
	// means that NVML as a whole does not respond.
	cards() ([]card, error)
	// events starts to listen to these GPUs, and returns the reasons for GPUs without events.
	events([]card) (eventSet, map[string]error, error)
	// writeSpecs writes the CDI specifications, except unchanged files, and returns the additional devices with
	// a specification.
	writeSpecs(specs) (extras []string, err error)
	// restart shuts NVML down and initializes NVML again, to use a reloaded driver.
	restart() error
	// close shuts NVML down.
	close()
}

// eventSet waits for events.
type eventSet interface {
	// wait returns the next event, or errNoEvent after the limit.
	wait(limit time.Duration) (event, error)
	free()
}

// ErrNoDriver means that NVIDIA's driver or its library is absent.
var ErrNoDriver = errors.New("enter NVML")

var (
	errNoEvent = errors.New("no event")
	errTooOld  = errors.New("the GPU is too old to tell of errors") // offered as healthy
)

// card is a GPU as NVML reports it.
type card struct {
	index    int
	err      error // reason for missing data
	uuid     string
	name     string // "NVIDIA H100 80GB HBM3"
	address  topology.Address
	minor    int    // of /dev/nvidia<minor>
	memory   uint64 // bytes, 0 for unknown
	mig      bool   // MIG mode is on
	slices   []slice
	peers    map[topology.Address]int // NVLinks to other GPUs
	switched int                      // NVLinks to NVSwitches
	needs    recovery
}

// slice is a MIG device.
type slice struct {
	index   int
	err     error // reason for missing data
	uuid    string
	profile profile
	gi, ci  uint32 // its GPU instance and compute instance
}

// profile is the kind of a MIG device.
type profile struct {
	name       string // "1g.10gb"
	whole      bool   // has all compute slices of its GPU instance
	attributes any    // comparable; equal for MIG devices of one kind
}

// recovery is the need of a GPU for a reset or another action before further use
// (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION in nvml.h).
type recovery int

const (
	recoveryUnknown recovery = iota // the driver is too old
	recoveryNone
	recoveryNeeded
)

// event is an NVML event.
type event struct {
	kind   eventKind
	uuid   string // of the GPU, "" if unknown
	xid    uint64
	gi, ci uint32 // the MIG device; wholeGPU for none
}

type eventKind int

const (
	otherEvent eventKind = iota
	xidEvent
	migEvent      // the MIG devices of the GPU changed
	recoveryEvent // the recovery action of the GPU changed
)

// wholeGPU is the instance of an event without a MIG device.
const wholeGPU = 0xffffffff

// libraryName is the file name of NVML.
const libraryName = "libnvidia-ml.so.1"

// libraryFolders are the driver folders of distributions, in the search order of NVIDIA's own plugin.
var libraryFolders = []string{
	"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "lib/x86_64-linux-gnu",
	"lib/aarch64-linux-gnu",
}

// findLibrary returns the path of NVML below a driver root. If the library is absent, findLibrary returns
// only the name, because the container runtime may have added the library to the loader's path.
func findLibrary(root string) string {
	if root == "" || root == "/" {
		return libraryName
	}
	for _, folder := range libraryFolders {
		if path, err := filepath.EvalSymlinks(filepath.Join(root, folder, libraryName)); err == nil {
			return path
		}
	}
	return libraryName
}
