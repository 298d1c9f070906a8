// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// handout is a plugin's last allocation to a container. The plugin of the other kind reads the handout if the
// coordinator is late, from a file in the run directory, without a server or a call between the plugins. A
// lost or damaged handout costs one good pair.
type handout struct {
	At      time.Time          `json:"at"`
	Devices []placement.Device `json:"devices"`
}

// handoutTTL is the maximum time from the first half of a container to the second. The kubelet asks for the
// second half immediately, within a fraction of this time on the busiest machine.
const handoutTTL = 10 * time.Second

// handoutLimit is the timeout of a write or read. The directory is in memory, where both take microseconds,
// on a busy machine longer; a short timeout loses a pair.
const handoutLimit = time.Second

// handoutFile returns the handout file of a kind.
func handoutFile(runDir string, kind device.Kind) string {
	return filepath.Join(runDir, "handout-"+string(kind)+".json")
}

// handoutReader reads the last handout of a kind.
type handoutReader func() (handout, error)

// newHandoutReader returns the reader for a kind.
func newHandoutReader(log *slog.Logger, runDir string, kind device.Kind) handoutReader {
	return system.BoundRead(log, handoutLimit, func() (last handout, err error) {
		content, err := os.ReadFile(handoutFile(runDir, kind))
		if err != nil {
			return last, err
		}
		return last, json.Unmarshal(content, &last)
	})
}

// handouts are the last handout of a resource and the last handout of the other kind.
type handouts struct {
	write func() (struct{}, error) // writes current
	other handoutReader

	mu      sync.Mutex
	current handout
}

// newHandouts returns the handouts of a resource of a kind.
func newHandouts(
	log *slog.Logger, disk system.Disk, runDir string, kind device.Kind, other handoutReader,
) *handouts {
	h := &handouts{other: other}
	h.write = system.BoundRead(log, handoutLimit, func() (none struct{}, err error) {
		content, err := json.Marshal(h.last())
		if err != nil {
			return none, err
		}
		return none, disk.Replace(handoutFile(runDir, kind), content, 0o600)
	})
	return h
}

func (h *handouts) last() handout {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// record records an allocation to a container.
func (h *handouts) record(devices []placement.Device) error {
	h.mu.Lock()
	h.current = handout{At: time.Now(), Devices: devices}
	h.mu.Unlock()
	_, err := h.write()
	return err
}

// counterparts returns the most likely devices of the other kind in the current container: the last
// allocation of the other kind, unless a container got devices of this resource since, which then was the
// same container.
func (h *handouts) counterparts() []placement.Device {
	other, err := h.other()
	if age := time.Since(other.At); err != nil || !other.At.After(h.last().At) || age < 0 || age > handoutTTL {
		return nil
	}
	return other.Devices
}
