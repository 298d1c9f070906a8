// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// management is the library as opened by go-nvml.
type management struct {
	mu      sync.Mutex // one call at a time, except waits
	api     nvml.Interface
	devices device.Interface
	path    string
	entered bool
}

// openLibrary enters NVML below a driver root.
func openLibrary(root string) (library, error) {
	path := findLibrary(root)
	api := nvml.New(nvml.WithLibraryPath(path))
	m := &management{api: api, devices: device.New(api), path: path}
	if err := m.enterNVML(); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *management) enterNVML() error {
	switch ret := m.api.Init(); ret {
	case nvml.SUCCESS:
		m.entered = true
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: %s cannot be opened: %s", errNoDriver, m.path, gpu.NVMLRemedy)
	default:
		return fmt.Errorf("%w: %s says %q: load NVIDIA's driver, or keep this plugin off the node",
			errNoDriver, m.path, returnWord(ret))
	}
}

func (m *management) leaveNVML() {
	if m.entered {
		_ = m.api.Shutdown()
	}
	m.entered = false
}

func (m *management) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveNVML()
}

func (m *management) restart() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveNVML()
	return m.enterNVML()
}

// returnWord returns NVML's own word for a return code.
func returnWord(ret nvml.Return) string { return strings.ToLower(nvml.ErrorString(ret)) }

func failedCall(what string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %s", what, returnWord(ret))
}

func (m *management) readCards() ([]card, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.entered {
		return nil, errors.New("NVML is not entered")
	}
	count, ret := m.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failedCall("count GPUs", ret)
	}
	cards := make([]card, 0, count)
	for i := range count {
		c := card{index: i}
		c.err = m.readCard(&c)
		if c.name != "DGX Display" && c.name != "NVIDIA DGX Display" { // a screen, not for computing
			cards = append(cards, c)
		}
	}
	return cards, nil
}

func (m *management) readCard(c *card) error {
	handle, ret := m.api.DeviceGetHandleByIndex(c.index)
	if ret != nvml.SUCCESS {
		return failedCall("find", ret)
	}
	c.uuid, ret = handle.GetUUID()
	if ret != nvml.SUCCESS {
		return failedCall("read UUID", ret)
	}
	c.name, ret = handle.GetName()
	if ret != nvml.SUCCESS {
		return failedCall("read name", ret)
	}
	c.minor, ret = handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return failedCall("read minor number", ret)
	}
	pci, ret := handle.GetPciInfo()
	if ret != nvml.SUCCESS {
		return failedCall("read PCI address", ret)
	}
	var err error
	c.address, err = parseBusID(textOf(pci.BusId[:]))
	if err != nil {
		return err
	}
	if memory, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		c.memory = memory.Total
	}
	c.needs = readRecovery(handle)
	c.peers, c.switched = m.readLinks(handle)
	return m.readSlices(handle, c)
}

// parseBusID parses NVML's format of a PCI address, with eight digits of domain: "00000000:0F:00.0".
func parseBusID(id string) (topology.Address, error) {
	domain, rest, _ := strings.Cut(id, ":")
	domain = strings.TrimLeft(domain, "0")
	return topology.ParseAddress(strings.Repeat("0", max(0, 4-len(domain))) + domain + ":" + rest)
}

// textOf converts a C string.
func textOf[T int8 | uint8](chars []T) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

func readRecovery(handle nvml.Device) recovery {
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	ret := handle.GetFieldValues(values)
	switch {
	case ret != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS:
		return recoveryUnknown
	case values[0].Value[0] == 0: // NVML_GPU_RECOVERY_ACTION_NONE; all actions fit in the first byte
		return recoveryNone
	default:
		return recoveryNeeded
	}
}

// hasFunction reports whether the driver has a function. Calling a missing one ends the process.
func (m *management) hasFunction(function string) bool {
	return m.api.Extensions().LookupSymbol(function) == nil
}

// readLinks counts the active NVLinks: by the GPU at the other end, and those to NVSwitches.
func (m *management) readLinks(handle nvml.Device) (peers map[topology.Address]int, switched int) {
	peers = map[topology.Address]int{}
	if !m.hasFunction("nvmlDeviceGetNvLinkRemoteDeviceType") {
		return peers, 0
	}
	for l := range nvml.NVLINK_MAX_LINKS {
		state, ret := handle.GetNvLinkState(l)
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		kind, ret := handle.GetNvLinkRemoteDeviceType(l)
		if ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			switched++
			continue
		}
		pci, ret := handle.GetNvLinkRemotePciInfo(l)
		if ret != nvml.SUCCESS {
			continue
		}
		if peer, err := parseBusID(textOf(pci.BusId[:])); err == nil {
			peers[peer]++
		}
	}
	return peers, switched
}

func (m *management) readSlices(handle nvml.Device, c *card) error {
	if !m.hasFunction("nvmlDeviceGetMigMode") {
		return nil // a driver older than MIG
	}
	mode, _, ret := handle.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil
	}
	if ret != nvml.SUCCESS {
		return failedCall("read MIG mode", ret)
	}
	c.mig = mode == nvml.DEVICE_MIG_ENABLE
	if !c.mig {
		return nil
	}
	most, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return failedCall("count MIG devices", ret)
	}
	for i := range most {
		mig, ret := handle.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		s := slice{index: i}
		s.err = failedCall("find", ret)
		if s.err == nil {
			s.err = m.readSlice(mig, &s)
		}
		c.slices = append(c.slices, s)
	}
	return nil
}

func (m *management) readSlice(handle nvml.Device, s *slice) error {
	var ret nvml.Return
	s.uuid, ret = handle.GetUUID()
	if ret != nvml.SUCCESS {
		return failedCall("read UUID", ret)
	}
	gi, ret := handle.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return failedCall("read GPU instance", ret)
	}
	ci, ret := handle.GetComputeInstanceId()
	if ret != nvml.SUCCESS {
		return failedCall("read compute instance", ret)
	}
	s.gi, s.ci = uint32(gi), uint32(ci)
	attributes, ret := handle.GetAttributes()
	if ret != nvml.SUCCESS {
		return failedCall("read attributes", ret)
	}
	mig, err := m.devices.NewMigDevice(handle)
	if err != nil {
		return err
	}
	p, err := mig.GetProfile()
	if err != nil {
		return err
	}
	s.profile = profile{name: p.String(), whole: p.GetInfo().C == p.GetInfo().G, attributes: attributes}
	return nil
}

// listener is an NVML event set.
type listener struct {
	set nvml.EventSet
}

// wanted are the events that change the offered devices or their health.
const wanted = uint64(
	nvml.EventTypeXidCriticalError | nvml.EventMigConfigChange | nvml.EventTypeGpuRecoveryAction,
)

func (m *management) events(cards []card) (eventSet, map[string]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.entered {
		return nil, nil, errors.New("NVML is not entered")
	}
	set, ret := m.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, nil, failedCall("make an event set", ret)
	}
	deaf := map[string]error{}
	for _, c := range cards {
		if c.err != nil {
			continue
		}
		if err := m.registerEvents(set, c.uuid); err != nil {
			deaf[c.uuid] = err
		}
	}
	return &listener{set}, deaf, nil
}

func (m *management) registerEvents(set nvml.EventSet, uuid string) error {
	handle, ret := m.api.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return failedCall("find", ret)
	}
	supported, ret := handle.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return failedCall("read event types", ret)
	}
	ret = handle.RegisterEvents(wanted&supported, set)
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return errTooOld
	}
	return failedCall("register for events", ret)
}

func (l *listener) wait(limit time.Duration) (event, error) {
	data, ret := l.set.Wait(uint32(limit.Milliseconds()))
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_TIMEOUT:
		return event{}, errNoEvent
	default:
		return event{}, failedCall("wait for events", ret)
	}
	e := event{xid: data.EventData, gi: data.GpuInstanceId, ci: data.ComputeInstanceId}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		e.kind = xidEvent
	case nvml.EventMigConfigChange:
		e.kind = migEvent
	case nvml.EventTypeGpuRecoveryAction:
		e.kind = recoveryEvent
	}
	if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
		e.uuid = uuid
	}
	return e, nil
}

func (l *listener) free() { _ = l.set.Free() }
