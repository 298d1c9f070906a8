// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"errors"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

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
		return nil, nil, failed("make an event set", ret)
	}
	deaf := map[string]error{}
	for _, c := range cards {
		if c.err != nil {
			continue
		}
		if err := m.register(set, c.uuid); err != nil {
			deaf[c.uuid] = err
		}
	}
	return &listener{set}, deaf, nil
}

func (m *management) register(set nvml.EventSet, uuid string) error {
	handle, ret := m.api.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return failed("find", ret)
	}
	supported, ret := handle.GetSupportedEventTypes()
	if ret != nvml.SUCCESS {
		return failed("read event types", ret)
	}
	ret = handle.RegisterEvents(wanted&supported, set)
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return errTooOld
	}
	return failed("register for events", ret)
}

func (l *listener) wait(limit time.Duration) (event, error) {
	data, ret := l.set.Wait(uint32(limit.Milliseconds()))
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_TIMEOUT:
		return event{}, errNoEvent
	default:
		return event{}, failed("wait for events", ret)
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
