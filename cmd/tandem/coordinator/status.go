// SPDX-License-Identifier: Apache-2.0

// Package coordinator asks the running plugins over their socket, and puts what they answer into words: JSON
// for programs, tables and pictures for people.
package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// Status is what the coordinator knows, as -o json prints it.
type Status struct {
	Version   document.V1 `json:"version"`
	PID       int64       `json:"pid"`      // of the plugin that serves
	Protocol  string      `json:"protocol"` // of the plugin that serves
	Mode      string      `json:"mode"`     // of the node: "device-plugin" or "dra"
	Plugins   []Plugin    `json:"plugins"`
	Resources []Resource  `json:"resources"`
	// by resource: kept for the second half of a container that is being admitted
	Plan     map[string][]string `json:"plan,omitempty"`
	Totals   Totals              `json:"totals"`
	Degraded []Degraded          `json:"degraded,omitempty"` // by container
	// what the kubelet itself says; nil where it was not asked
	Kubelet *Kubelet `json:"kubelet,omitempty"`
	// whether containers are refused whose pairs are not all on one switch; nil where the plugin does not say
	Alignment *Alignment `json:"alignment,omitempty"`
	Notes     []string   `json:"notes,omitempty"` // what the daemon goes without, and why
}

// Plugin is one of the two processes.
type Plugin struct {
	PID       int64    `json:"pid"` // 0 where it cannot be seen from the serving one
	Role      string   `json:"role"`
	Protocol  string   `json:"protocol"`
	Version   string   `json:"version,omitempty"` // of the program
	Resources []string `json:"resources"`
}

// Resource is what the kubelet knows devices by.
type Resource struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Connected bool     `json:"connected"` // its plugin is there now
	Devices   []Device `json:"devices"`
	// whether the kubelet goes by the devices of the resource; nil where that is not known
	Registered *bool `json:"registered,omitempty"`
}

// NewStatus is the answer to a question for all devices.
func NewStatus(answer *api.StatusResponse) Status {
	s := Status{
		PID: answer.GetPid(), Protocol: protocolText(answer.GetProtocol(), answer.GetMinor()),
		Mode: cmp.Or(answer.GetMode(), string(mode.DevicePlugin)), Notes: answer.GetNotes(),
		Plugins: []Plugin{}, Resources: []Resource{},
	}
	for _, p := range answer.GetPeers() {
		role := "joined"
		if p.GetServes() {
			role = "serves"
		}
		s.Plugins = append(s.Plugins, Plugin{
			PID: p.GetPid(), Role: role, Version: p.GetVersion().GetBuild(), Resources: p.GetResources(),
			Protocol: protocolText(p.GetVersion().GetMajor(), p.GetVersion().GetMinor()),
		})
	}
	for name, devices := range answer.GetPlan().GetDevices() {
		if s.Plan == nil {
			s.Plan = map[string][]string{}
		}
		s.Plan[name] = devices.GetIds()
	}
	for _, r := range answer.GetResources() {
		resource := Resource{Name: r.GetName(), Kind: r.GetKind(), Connected: r.GetConnected(), Devices: []Device{}}
		for _, d := range r.GetDevices() {
			resource.Devices = append(resource.Devices,
				newDevice(d, slices.Contains(s.Plan[r.GetName()], d.GetDevice().GetId())))
		}
		s.Resources = append(s.Resources, resource)
	}
	s.Totals, s.Degraded = totalsOf(s.rows()), degradedOf(answer.GetResources())
	s.Alignment = alignmentOf(answer)
	return s
}

// isDRA reports whether the node is in the mode of DRA.
func (s Status) isDRA() bool { return s.Mode == string(mode.DRA) }

func protocolText(major, minor uint32) string { return fmt.Sprintf("%d.%d", major, minor) }

// rows are the devices of all resources by switch; within one they keep their order.
func (s Status) rows() []row {
	var rows []row
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			rows = append(rows, row{d, r.Name, device.Kind(r.Kind), !r.Connected})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.Switch, b.Switch) })
	return rows
}

// Devices names all that the plugins have.
func (s Status) Devices() string {
	var all strings.Builder
	for _, row := range s.rows() {
		fmt.Fprintln(&all, row.resource, row.ID, row.Address)
	}
	return all.String()
}

// Alignment says whether containers are refused whose pairs are not all on one switch.
type Alignment struct {
	Policy      string `json:"policy"`           // of pods without annotation: "preferred" or "required"
	Annotations bool   `json:"annotations"`      // tandem.dev/alignment of pods is enforced
	Source      string `json:"source,omitempty"` // that reads it
	Why         string `json:"why,omitempty"`    // it is not enforced
}

func alignmentOf(answer *api.StatusResponse) *Alignment {
	a := answer.GetAlignment()
	if a == nil {
		return nil
	}
	return &Alignment{a.GetPolicy(), a.GetAnnotations(), a.GetSource(), a.GetWhy()}
}

// Unenforced says that the annotation of pods is not enforced, and why; "" where it is, or nobody tells.
func (a *Alignment) Unenforced() string {
	if a == nil || a.Annotations {
		return ""
	}
	return fmt.Sprintf("annotation %s of pods is not enforced on this node: %s", intent.AlignmentKey, a.Why)
}
