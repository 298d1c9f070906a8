// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// VFs holds the current pools of a machine, computed at the start and after each change. It also holds
// previously listed devices: a gone device stays in its pool as unhealthy.
type VFs struct {
	finder pools.Finder
	config *pools.Config
	known  Known
	log    *slog.Logger
	events events
	look   system.Trigger // the machine may have changed
	health *health.Monitor

	memory   *memory
	reserved pools.Reservations // for functions that have carried the node's own network since the start
	written  []byte             // the current content of the memory file
	unheld   system.Complaint   // about the devices of containers
	hints    hinting

	mu       sync.Mutex
	found    []pools.Pool // by the last scan without an error
	warnings []string
	names    []string
	pools    map[string]pools.Pool
	changed  system.Signal
	looked   system.Signal // every scan, changed or not
}

// Known is the knowledge about devices from before the start.
type Known struct {
	Disk system.Disk
	File string // the state that must survive a restart
	// Held reads the devices of containers, by resource; nil without containers.
	Held func() (map[string][]string, error)
	// Decide decides about the hints of pools as listed, by name, and reports whether the GPUs are known. Nil
	// without a kubelet that merges hints: pools then keep the NUMA nodes of the machine.
	Decide func(listed []pools.Pool) (decided map[string]pools.Decision, gpusKnown bool)
	// Changed is told of each change of a pool's hints, and returns at once; it may be nil.
	Changed func(resource, decision string)
}

// FindVFs computes the pools of a configuration. Events reports changes of the machine; it may be nil. Run
// scans for changes.
func FindVFs(
	finder pools.Finder, config *pools.Config, known Known, events events, log *slog.Logger,
) (*VFs, error) {
	boot, err := known.Disk.BootID()
	memory := newMemory(boot)
	if err == nil {
		memory, err = readMemory(known.File, boot)
	}
	if err != nil {
		log.Warn("known devices not restored; devices of running containers may be missing", "error", err)
		memory = newMemory(boot)
	}
	v := &VFs{
		finder: finder, config: config, known: known, log: log, events: events, look: system.NewTrigger(),
		memory: memory, reserved: pools.Reservations{}, pools: map[string]pools.Pool{},
		hints: hinting{began: time.Now(), allocated: map[string]time.Time{}},
	}
	for _, warning := range config.Warnings {
		log.Warn("note on the configuration", "file", config.File, "note", warning)
	}
	if finder.Tree != nil {
		v.finder.Tree = sync.OnceValues(finder.Tree) // shared by all pools at the start
	}
	if err := v.scanMachine(); err != nil {
		return nil, err
	}
	for _, name := range v.names {
		if len(v.pools[name].Devices) == 0 {
			log.Warn("resource has no device and is not offered until a device appears", "resource", name)
		}
	}
	v.logRejections()
	v.finder = finder
	return v, nil
}

// forgetFree removes the devices that no container holds and that the last scan did not find from the memory,
// and nothing while the holders are unknown.
func (v *VFs) forgetFree() {
	if v.known.Held == nil {
		return
	}
	held, err := v.known.Held()
	if v.unheld.IsNew(err) {
		v.log.Info("devices of containers not read; all earlier devices stay listed", "error", err)
	}
	if err != nil {
		return
	}
	v.memory.keepHeld(held, func(resource, id string) bool {
		d, known := v.pools[resource].Device(id)
		return known && !d.Missing()
	})
}

// logRejections logs the devices that selectors rejected.
func (v *VFs) logRejections() {
	f := v.finder
	f.Known, f.Reserved = v.memory.Hidden, v.reserved
	choices, err := f.Explain(v.config)
	if err != nil {
		v.log.Warn("devices that selectors reject not determined", "error", err)
		return
	}
	for _, c := range choices {
		var misses []string
		for _, miss := range c.Nearest {
			misses = append(misses, miss.String())
		}
		if c.Rejected > 0 {
			v.log.Info("selector rejected devices", "resource", c.Resource, "selector", c.Selector,
				"selected", c.Selected, "rejected", c.Rejected, "by", c.Summary(), "nearest", strings.Join(misses, "; "))
		}
	}
}

// Heed makes the monitor judge the devices; to be called before Run.
func (v *VFs) Heed(monitor *health.Monitor) {
	v.health = monitor
	monitor.Watch(watchedBy(v.found))
	monitor.Look()
	v.takePools(v.found, v.warnings)
}

// Names returns the resource names in the order of the configuration, including those of empty pools.
func (v *VFs) Names() []string { return slices.Clone(v.names) }

// Found returns the names of the pools with devices.
func (v *VFs) Found() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.names), func(name string) bool {
		return len(v.pools[name].Devices) == 0
	})
}

// All returns the current pools in the order of the configuration, including empty pools and gone devices,
// and a channel that is closed after the next change. Callers must not change the pools.
func (v *VFs) All() ([]pools.Pool, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]pools.Pool, 0, len(v.names))
	for _, name := range v.names {
		all = append(all, v.pools[name])
	}
	return all, v.changed.Next()
}

// latestPool returns a current pool and a channel that is closed after the next change.
func (v *VFs) latestPool(name string) (pools.Pool, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pools[name], v.changed.Next()
}

// scanMachine computes the pools. A function that has carried the node's own network is not offered until the
// daemon restarts: its route or netdev can be absent for a moment, which cannot be distinguished from a
// network that has moved.
func (v *VFs) scanMachine() error {
	f := v.finder
	reserved, notes, err := f.FindReservations()
	if err != nil {
		return err
	}
	maps.Copy(v.reserved, reserved)
	f.Known, f.Reserved = v.memory.Hidden, v.reserved
	found, warnings, err := f.Find(v.config)
	if err != nil {
		return err
	}
	v.forgetFree()
	v.decideHints(found)
	v.takePools(found, append(notes, warnings...))
	v.saveMemory()
	return nil
}

// scanAgain scans. Without a result the last known devices get their health of now: nothing else would tell
// of a port that has failed.
func (v *VFs) scanAgain() {
	if err := v.scanMachine(); err != nil {
		v.log.Warn("devices not read; using the last known devices", "error", err)
		v.takePools(v.found, v.warnings)
	}
}

// takePools stores the result of a scan.
func (v *VFs) takePools(found []pools.Pool, warnings []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Equal(warnings, v.warnings) {
		for _, warning := range warnings {
			v.log.Warn("note on the configuration", "file", v.config.File, "note", warning)
		}
	}
	v.names, v.warnings, v.found = nil, warnings, found
	changed := false
	for _, pool := range found {
		pool.Devices = v.judgeDevices(v.addGone(pool))
		if decided, ok := v.hints.decided[pool.Name]; ok {
			pool = pool.Decided(decided)
		}
		if pool.Decision != v.pools[pool.Name].Decision {
			v.log.Info("NUMA hints", "resource", pool.Name, "decision", pool.Decision)
		}
		if v.reportChanges(pool) || pool.Decision != v.pools[pool.Name].Decision {
			changed = true
		}
		v.names = append(v.names, pool.Name)
		v.pools[pool.Name] = pool
		v.memory.rememberPool(pool)
	}
	v.memory.dropUnlisted()
	v.health.Watch(watchedBy(slices.Collect(maps.Values(v.pools)))) // gone ones too: they may come back
	v.looked.Raise()
	if changed {
		v.changed.Raise()
	}
}

// nextLook returns a channel that is closed after the next scan.
func (v *VFs) nextLook() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.looked.Next()
}

// addGone adds the listed devices of a pool that are no longer found.
func (v *VFs) addGone(pool pools.Pool) []pools.Device {
	found := make(map[string]pools.Device, len(pool.Devices))
	for _, d := range pool.Devices {
		found[d.ID] = d
	}
	all := deviceplugin.Keep(v.memory.Listed[pool.Name], found, func(d pools.Device) pools.Device {
		d.Fault = "no longer selected by the resource"
		if d.Gone(v.finder.Sys) {
			d.Fault = "gone"
		}
		return d
	})
	return slices.SortedFunc(maps.Values(all), pools.Device.Compare)
}

// watchedBy returns the functions of the devices of pools, none of them a GPU.
func watchedBy(found []pools.Pool) map[topology.Address]bool {
	list := map[topology.Address]bool{}
	for _, pool := range found {
		for _, d := range pool.Devices {
			list[d.Function()] = false
		}
	}
	return list
}

// judgeDevices returns the devices with the health of their functions. A fault that the configuration looks
// for takes precedence: a device with a fault is not degraded as well.
func (v *VFs) judgeDevices(devices []pools.Device) []pools.Device {
	for i := range devices {
		d := &devices[i]
		switch verdict := v.health.Verdict(d.Function()); verdict.State {
		case health.Failed:
			d.Fault = cmp.Or(d.Fault, verdict.Reason)
		case health.Degraded:
			d.Degraded = verdict.Reason
		}
		if d.Fault != "" {
			d.Degraded = ""
		}
	}
	return devices
}

// reportChanges logs the changes of a pool.
func (v *VFs) reportChanges(pool pools.Pool) bool {
	before := map[string]pools.Device{}
	for _, d := range v.pools[pool.Name].Devices {
		before[d.ID] = d
	}
	var appeared []string
	var changes health.Report
	for _, d := range pool.Devices {
		was, known := before[d.ID]
		switch {
		case d.Fault != "" && (!known || was.Fault != d.Fault):
			changes.Add(d.Name(), health.Verdict{State: health.Failed, Reason: d.Fault})
		case d.Degraded != "" && (!known || was.Degraded != d.Degraded):
			changes.Add(d.Name(), health.Verdict{State: health.Degraded, Reason: d.Degraded})
		case !known:
			appeared = append(appeared, d.ID)
		case was.Fault != d.Fault || was.Degraded != d.Degraded:
			changes.Add(d.Name(), health.Verdict{})
		case !was.Same(d):
			appeared = append(appeared, d.ID)
		}
	}
	log := v.log.With("resource", pool.Name)
	if len(appeared) > 0 {
		log.Info("discovered", "devices", len(pool.Devices), "new", len(appeared))
	}
	changes.Log(log)
	return len(appeared) > 0 || !changes.IsEmpty()
}

// saveMemory writes the memory after a change, or if its file is gone, after the report to the kubelet,
// because writing takes time, and reports whether the file has the memory. An error is not fatal: a restart
// then has less information.
func (v *VFs) saveMemory() bool {
	_, missing := os.Lstat(v.known.File) // somebody may have emptied the run directory
	content, err := json.Marshal(v.memory)
	if err == nil && (missing != nil || !bytes.Equal(content, v.written)) {
		if err = v.known.Disk.Replace(v.known.File, content, 0o600); err == nil {
			v.written = content
		}
	}
	if err != nil {
		v.log.Warn("known devices not saved; after a restart, devices of running containers may be missing",
			"error", err)
	}
	return err == nil
}
