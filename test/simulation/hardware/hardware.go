// SPDX-License-Identifier: Apache-2.0

// Package hardware is the hardware of a simulated node: a recorded machine with VFs, which can change, and
// the driver of its GPUs.
package hardware

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// amd is the PCI vendor ID of the GPUs that a machine offers.
const amd = 0x1002

// layout is a recorded machine with a number of VFs on each PF.
type layout struct {
	sys   fs.FS
	links fs.FS // the same, for what is no file
	tree  *topology.Tree
}

// layouts are the machines that a process has read, by name and number of VFs.
var layouts struct {
	sync.Mutex
	known map[layoutName]layout
}

type layoutName struct {
	machine string
	vfs     int
}

// load returns a layout, from memory if possible.
func load(name layoutName) (layout, error) {
	layouts.Lock()
	defer layouts.Unlock()
	if l, ok := layouts.known[name]; ok {
		return l, nil
	}
	machine, err := machines.Load(name.machine, name.vfs)
	if err != nil {
		return layout{}, err
	}
	sys := machine.FS()
	l := layout{sys: &memory{FS: sys}, links: sys}
	if l.tree, err = topology.Read(sys); err != nil {
		return layout{}, err
	}
	if layouts.known == nil {
		layouts.known = map[layoutName]layout{}
	}
	layouts.known[name] = l
	return l, nil
}

// Machine is the hardware of a node, which can change. Its methods are safe for concurrent use.
type Machine struct {
	machine string

	mu       sync.Mutex
	vfs      int // on each PF
	now      layout
	gone     map[string]bool // GPUs off the bus, by ID
	noDriver bool            // of the GPUs
	noVerbs  bool            // functions have no character devices for RDMA yet
	errors   map[string]int  // by file
	watchers map[int]func()
	next     int
}

// New returns a machine without faults.
func New(machine string, vfs int) (*Machine, error) {
	now, err := load(layoutName{machine, vfs})
	if err != nil {
		return nil, err
	}
	return &Machine{
		machine: machine, vfs: vfs, now: now, gone: map[string]bool{}, errors: map[string]int{},
		watchers: map[int]func(){},
	}, nil
}

// Open opens a file of sysfs as it is now.
func (h *Machine) Open(name string) (fs.File, error) {
	if errorFiles[path.Base(name)] {
		return &errorFile{machine: h, name: name}, nil
	}
	h.mu.Lock()
	now, absent := h.now, h.noVerbs && path.Base(name) == Verbs
	h.mu.Unlock()
	if absent {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return now.sys.Open(name)
}

// ReadLink reads a link of sysfs as it is now.
func (h *Machine) ReadLink(name string) (string, error) { return fs.ReadLink(h.layout().links, name) }

// Lstat describes a file of sysfs as it is now.
func (h *Machine) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(h.layout().links, name) }

func (h *Machine) layout() layout {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Tree returns the PCI tree. The error is nil.
func (h *Machine) Tree() (*topology.Tree, error) { return h.Present(), nil }

// Present returns the PCI tree.
func (h *Machine) Present() *topology.Tree { return h.layout().tree }

// Lacks reports whether any of several functions is no longer there, or off the bus.
func (h *Machine) Lacks(functions []topology.Address) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(functions, func(a topology.Address) bool {
		_, present := h.now.tree.Device(a)
		return !present || h.gone[a.String()]
	})
}

// GPUs returns the GPUs that the driver shows, and false without a driver.
func (h *Machine) GPUs() (found []*topology.Device, driver bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := range h.now.tree.Devices() {
		if d.Class.IsGPU() && d.Vendor == amd && !h.gone[d.Address.String()] && !h.noDriver {
			found = append(found, d)
		}
	}
	return found, !h.noDriver
}

// change changes the machine and notifies the plugins.
func (h *Machine) change(edit func()) {
	h.mu.Lock()
	edit()
	watchers := make([]func(), 0, len(h.watchers))
	for _, changed := range h.watchers {
		watchers = append(watchers, changed)
	}
	h.mu.Unlock()
	for _, changed := range watchers {
		changed()
	}
}

// setVFs creates a number of VFs on each PF, in place of the present VFs.
func (h *Machine) setVFs(vfs int) error {
	now, err := load(layoutName{h.machine, vfs})
	if err == nil {
		h.change(func() { h.vfs, h.now = vfs, now })
	}
	return err
}

// Verbs is the folder of a function with its character devices for RDMA.
const Verbs = "infiniband_verbs"

// SetVerbs makes these folders absent, or brings them back.
func (h *Machine) SetVerbs(present bool) { h.change(func() { h.noVerbs = !present }) }

// Watch calls changed after each change until ctx is done.
func (h *Machine) Watch(ctx context.Context, changed func()) error {
	h.mu.Lock()
	id := h.next
	h.next++
	h.watchers[id] = changed
	h.mu.Unlock()
	changed()
	<-ctx.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, id)
	return nil
}

// Disturb makes a random change, and describes the change; "" for none.
func (h *Machine) Disturb(random *rand.Rand) (what string, err error) {
	c, any := h.Draw(random)
	if !any {
		return "", nil
	}
	return string(c.What), h.Apply(c)
}

// anyFunction returns a GPU or PF.
func (h *Machine) anyFunction(random *rand.Rand) topology.Address {
	var all []topology.Address
	for d := range h.Present().Devices() {
		if d.Class.IsGPU() || d.Class.IsNetwork() && !d.IsVF() {
			all = append(all, d.Address)
		}
	}
	return all[random.IntN(len(all))]
}

// Ports returns the PFs.
func (h *Machine) Ports() (ports []topology.Address) {
	for d := range h.Present().Devices() {
		if d.Class.IsNetwork() && !d.IsVF() {
			ports = append(ports, d.Address)
		}
	}
	return ports
}

// PerPort returns the number of VFs on each PF.
func (h *Machine) PerPort() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vfs
}

// Monitor returns a monitor of the health of PFs and GPUs. It looks every five seconds: more often costs the
// simulation more than the rest.
func (h *Machine) Monitor() *health.Monitor {
	config := health.Default()
	config.Interval = 5 * time.Second
	return health.New(config, h)
}

// Heal brings all GPUs and their driver back.
func (h *Machine) Heal() { h.change(func() { clear(h.gone); h.noDriver = false }) }
