// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/file"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// handout is a plugin's last allocation to a container. The plugin of the other kind reads it if the
// coordinator is late, from a file in the run directory, without a server or a call between the plugins. A
// lost or damaged handout costs one good pair.
type handout struct {
	At      time.Time          `json:"at"`
	Devices []placement.Device `json:"devices"`
}

// handoutTTL is the maximum time from the first half of a container to the second. The kubelet asks for the
// second half immediately, within a fraction of this time on the busiest machine.
const handoutTTL = 10 * time.Second

// handoutLimit is the timeout of a write or read. The directory is in memory, where both take microseconds;
// on a busy machine they can take longer, and a timeout that is too short loses a pair.
const handoutLimit = time.Second

// handoutFile returns the handout file of a kind.
func handoutFile(runDir string, kind device.Kind) string {
	return filepath.Join(runDir, "handout-"+string(kind)+".json")
}

// handed records devices that a container got.
func (m *Member) handed(ids []string) {
	last := handout{At: time.Now(), Devices: m.placed(ids)}
	m.node.mu.Lock()
	m.last = last
	m.node.mu.Unlock()
	if _, err := m.write(); err != nil {
		m.log.Debug("the other plugin cannot know what was given", "error", err)
	}
}

// writeLast returns a function that writes the last handout.
func (m *Member) writeLast() func() (struct{}, error) {
	return bounded.Read(m.log, handoutLimit, func() (none struct{}, err error) {
		m.node.mu.Lock()
		last := m.last
		m.node.mu.Unlock()
		content, err := json.Marshal(last)
		if err != nil {
			return none, err
		}
		return none, file.Replace(handoutFile(m.node.config.RunDir, m.kind), content, 0o600)
	})
}

// readHandouts returns functions that read the last handout of each kind.
func readHandouts(log *slog.Logger, runDir string) map[device.Kind]func() (handout, error) {
	read := map[device.Kind]func() (handout, error){}
	for _, kind := range []device.Kind{device.GPU, device.VF} {
		read[kind] = bounded.Read(log, handoutLimit, func() (last handout, err error) {
			content, err := os.ReadFile(handoutFile(runDir, kind))
			if err != nil {
				return last, err
			}
			return last, json.Unmarshal(content, &last)
		})
	}
	return read
}

// counterparts returns the devices of the other kind that the current container most likely has: those of the
// last allocation, unless a container got devices of this resource since, which then was the same container.
func (m *Member) counterparts() []placement.Device {
	last, err := m.node.handouts[m.kind.Other()]()
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	if age := time.Since(last.At); err != nil || !last.At.After(m.last.At) || age < 0 || age > handoutTTL {
		return nil
	}
	return last.Devices
}
