// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// Machine is where the node's files are.
type Machine struct {
	Sys     fs.FS         // /sys
	Proc    fs.FS         // /proc
	DevRoot string        // /dev
	CDIRoot string        // where CDI specifications go, /var/run/cdi
	Recheck time.Duration // between two looks at a GPU that is broken, 30 s where it is 0
}

// library is NVIDIA's driver as far as this package needs it: everything about all GPUs at once, and events.
// Nothing of it is called while the kubelet waits for an answer.
type library interface {
	// cards lists the GPUs in NVML's order. A GPU that does not answer is in the list with its err; an error
	// means that NVML as a whole does not answer.
	cards() ([]card, error)
	// events starts to listen to these GPUs. Those that cannot be listened to are returned with the reason.
	events([]card) (eventSet, map[string]error, error)
	// writeSpecs writes the CDI specifications, where the files do not say the same already, and returns the
	// additional devices that have one.
	writeSpecs(specs) (extras []string, err error)
	// restart leaves NVML and enters it again, which is how it takes notice of a driver that was reloaded.
	restart() error
	// close leaves NVML.
	close()
}

// eventSet hands out events one by one.
type eventSet interface {
	// wait returns the next event. It gives up with errNoEvent once the limit is over.
	wait(limit time.Duration) (event, error)
	free()
}

// ErrNoDriver says that NVIDIA's driver, or its library, is not there.
var ErrNoDriver = errors.New("enter NVML")

var (
	errNoEvent = errors.New("no event")
	errTooOld  = errors.New("the GPU is too old to tell of errors") // it is offered, and taken for healthy
)

// card is one GPU as NVML shows it.
type card struct {
	index    int
	err      error // why the rest is not known
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

// slice is one MIG device.
type slice struct {
	index   int
	err     error // why the rest is not known
	uuid    string
	profile profile
	gi, ci  uint32 // its GPU instance and compute instance
}

// profile is the kind of a MIG device.
type profile struct {
	name       string // "1g.10gb"
	whole      bool   // it has all compute slices of its GPU instance
	attributes any    // what has to be equal for two MIG devices to be of one kind; comparable
}

// recovery says whether a GPU needs to be reset or more before it can be trusted again
// (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION in nvml.h).
type recovery int

const (
	recoveryUnknown recovery = iota // the driver is too old to say
	recoveryNone
	recoveryNeeded
)

// event is one of NVML's.
type event struct {
	kind   eventKind
	uuid   string // of the GPU, "" where NVML cannot tell
	xid    uint64
	gi, ci uint32 // the MIG device it is about, wholeGPU for none
}

type eventKind int

const (
	otherEvent eventKind = iota
	xidEvent
	migEvent      // the GPU was divided anew
	recoveryEvent // what the GPU needs is another thing than before
)

// wholeGPU is the instance of an event that is not about a MIG device.
const wholeGPU = 0xffffffff

// libraryName is what the driver installs.
const libraryName = "libnvidia-ml.so.1"

// libraryFolders are where distributions install the driver, in the order in which NVIDIA's own plugin looks.
var libraryFolders = []string{
	"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "lib/x86_64-linux-gnu",
	"lib/aarch64-linux-gnu",
}

// findLibrary returns the path of NVML below a driver root. Where there is none, it is the bare name: the
// container runtime may have put the library on the loader's path.
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
