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

// handout is what a plugin gave a container last. The plugin of the other kind reads it where the coordinator
// is late: from a file in the run folder, which takes no server, and no word between the two. One that is
// lost or damaged costs one good pair.
type handout struct {
	At      time.Time          `json:"at"`
	Devices []placement.Device `json:"devices"`
}

// handoutTTL is how long the second half of a container is awaited after the first. The kubelet asks for it
// at once, and takes a fraction of this on the busiest machine.
const handoutTTL = 10 * time.Second

// handoutLimit bounds the writing and the reading. The folder is in memory, where both take microseconds, or
// as long as others keep a busy machine from getting on with it; a pair is lost where it ends too early.
const handoutLimit = time.Second

// handoutFile is where the plugins of a kind write.
func handoutFile(runDir string, kind device.Kind) string {
	return filepath.Join(runDir, "handout-"+string(kind)+".json")
}

// handed takes note of devices that a container was given.
func (m *Member) handed(ids []string) {
	last := handout{At: time.Now(), Devices: m.placed(ids)}
	m.node.mu.Lock()
	m.last = last
	m.node.mu.Unlock()
	if _, err := m.write(); err != nil {
		m.log.Debug("the other plugin cannot know what was given", "error", err)
	}
}

// writeLast makes the function that writes the last handout.
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

// readHandouts makes the functions that read the last handout of a kind.
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

// counterparts are the devices of the other kind which the container that is asked for, or was given devices
// just now, most likely has: those given last, unless a container was given some of this resource since,
// which then was the same one.
func (m *Member) counterparts() []placement.Device {
	last, err := m.node.handouts[m.kind.Other()]()
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	if age := time.Since(last.At); err != nil || !last.At.After(m.last.At) || age < 0 || age > handoutTTL {
		return nil
	}
	return last.Devices
}
