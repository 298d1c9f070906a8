// SPDX-License-Identifier: Apache-2.0

package health

import (
	"log/slog"
	"maps"
	"slices"
)

// Report collects the devices of a resource whose health has changed, for the log of a plugin: both plugins
// use the same words.
type Report struct {
	devices map[Verdict][]string
}

// Add adds a device with its health now: its plugin can have other reasons than those of a [Monitor].
func (r *Report) Add(device string, now Verdict) {
	if r.devices == nil {
		r.devices = map[Verdict][]string{}
	}
	r.devices[now] = append(r.devices[now], device)
}

// IsEmpty reports whether no health has changed.
func (r *Report) IsEmpty() bool { return len(r.devices) == 0 }

// Log writes a line for each state and reason, the worst first.
func (r *Report) Log(log *slog.Logger) {
	for _, v := range slices.SortedFunc(maps.Keys(r.devices), worse) {
		devices := slices.Compact(r.devices[v])
		switch v.State {
		case Failed:
			log.Warn("devices failed", "reason", v.Reason, "devices", devices)
		case Degraded:
			log.Warn("devices degraded: chosen last", "reason", v.Reason, "devices", devices)
		default:
			log.Info("devices good again", "devices", devices)
		}
	}
}
