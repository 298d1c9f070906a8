package nvidia

import (
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

// Backend is the NVIDIA GPUs of a node.
type Backend struct {
	config   settings.Config
	machine  Machine
	log      *slog.Logger
	lib      library
	channels []channel // IMEX channels to give containers
	read     bool      // NVML answered once
	kind     any       // with --mig-strategy=single, of all GPUs when they were last alike

	mu     sync.Mutex // never held while NVML is asked
	known  []card
	broken map[string]mark    // by the UUID of a GPU or MIG device
	extras []string           // CDI devices that every container gets beside its own
	files  map[string]written // CDI specifications, by path
}

// Machine is where the node's files are.
type Machine struct {
	Sys     fs.FS         // /sys
	Proc    fs.FS         // /proc
	DevRoot string        // /dev
	CDIRoot string        // where CDI specifications go, /var/run/cdi
	Recheck time.Duration // between two looks at a GPU that is broken, 30 s where it is 0
}

// Close leaves NVML.
func (b *Backend) Close() { b.lib.close() }

// Warnings are what is to be logged about the configuration.
func (b *Backend) Warnings() []string { return b.config.Warnings }

// remember keeps what NVML answered last; nil where it does not answer.
func (b *Backend) remember(cards []card) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = cards
}

// cards are the GPUs that answered last.
func (b *Backend) cards() []card {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known
}
