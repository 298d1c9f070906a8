// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// chooser chooses devices of a resource without the coordinator: by the PCI tree, this plugin's announcement
// and the last allocation of the other plugin. A chooser keeps GPUs together, takes VFs of separate PFs next
// to a GPU, and chooses the best second half for the first half of a container.
type chooser struct {
	*announcement
	*handouts
	machine *machine
}

// choose answers a question, with the reason.
func (c *chooser) choose(q *api.PreferRequest) (chosen []string, reason string) {
	mustInclude, size := q.GetMustInclude(), int(q.GetSize())
	available := c.permitShared(q.GetAvailable(), mustInclude, size)
	asked := placement.Half{Count: size}
	for _, device := range c.locateDevices(available) {
		if slices.Contains(mustInclude, device.ID) {
			asked.Held = append(asked.Held, device)
		} else {
			asked.Free = append(asked.Free, device)
		}
	}
	choice, err := c.place(asked, c.otherHalf(size))
	if err != nil {
		return firstOf(available, mustInclude, size), err.Error()
	}
	return c.ofKind(choice), choice.Reason
}

// inPairOrder orders a container's devices by their counterparts of the previous allocation, or by address
// without counterparts.
func (c *chooser) inPairOrder(ids []string) []string {
	before := c.likelyCounterparts()
	choice, err := c.place(placement.Half{Count: len(ids), Held: c.locateDevices(ids)},
		placement.Half{Count: len(before), Held: before})
	if err != nil {
		return ids
	}
	return c.ofKind(choice)
}

// place chooses devices for this half and the other half of a container.
func (c *chooser) place(half, other placement.Half) (placement.Choice, error) {
	request := placement.Request{Links: c.links()}
	c.kind.AddTo(&request, half)
	c.kind.Other().AddTo(&request, other)
	return placement.Choose(c.machine.Newest(), request)
}

// otherHalf returns the container's devices of the other kind, and more up to the requested number: the
// container may reuse devices of an init container, or may not be the container of the last allocation.
// Allocated devices of the other plugin are unknown here, so VFs are chosen as if all GPUs of the machine
// were free. GPUs are chosen independently of VFs.
func (c *chooser) otherHalf(size int) placement.Half {
	half := placement.Half{Held: c.likelyCounterparts()}
	half.Count = len(half.Held)
	if c.kind == device.GPU || half.Count >= size {
		return half
	}
	held := map[topology.Address]bool{}
	for _, d := range half.Held {
		held[d.Address] = true
	}
	for d := range c.machine.Newest().Devices() {
		if d.Class.IsGPU() && !held[d.Address] {
			half.Free = append(half.Free, placement.Device{ID: d.Address.String(), Address: d.Address})
		}
	}
	half.Count = max(half.Count, min(size, half.Count+len(half.Free)))
	return half
}

// ofKind returns the devices of this resource's kind in a choice.
func (c *chooser) ofKind(choice placement.Choice) []string {
	devices := choice.GPUs
	if c.kind == device.VF {
		devices = choice.VFs
	}
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// firstOf is the answer without any information: the mustInclude IDs, then the lowest other IDs.
func firstOf(available, mustInclude []string, size int) []string {
	ids := slices.Clone(mustInclude)
	for _, id := range slices.Sorted(slices.Values(available)) {
		if len(ids) < size && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

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

// likelyCounterparts returns the most likely devices of the other kind in the current container: the last
// allocation of the other kind, unless a container got devices of this resource since, which then was the
// same container.
func (h *handouts) likelyCounterparts() []placement.Device {
	other, err := h.other()
	if age := time.Since(other.At); err != nil || !other.At.After(h.last().At) || age < 0 || age > handoutTTL {
		return nil
	}
	return other.Devices
}
