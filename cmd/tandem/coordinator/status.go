// SPDX-License-Identifier: Apache-2.0

// Package coordinator asks the running plugins over their socket, and renders the answers: JSON for programs,
// tables and pictures for people.
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

// Status is the coordinator's status, as printed by -o json.
type Status struct {
	Version   document.V1 `json:"version"`
	PID       int64       `json:"pid"`      // of the serving plugin
	Protocol  string      `json:"protocol"` // of the serving plugin
	Mode      string      `json:"mode"`     // of the node: "device-plugin" or "dra"
	Plugins   []Plugin    `json:"plugins"`
	Resources []Resource  `json:"resources"`
	// by resource: reserved for the second half of the container in admission
	Plan     map[string][]string `json:"plan,omitempty"`
	Totals   Totals              `json:"totals"`
	Degraded []Degraded          `json:"degraded,omitempty"` // by container
	// the kubelet's own answer; nil without a question
	Kubelet *Kubelet `json:"kubelet,omitempty"`
	// the policy for pairs that are not on one switch; nil if the plugin reports none
	Alignment *Alignment `json:"alignment,omitempty"`
	Notes     []string   `json:"notes,omitempty"` // limitations of the daemon, with reasons
}

// Plugin is a plugin's process.
type Plugin struct {
	PID       int64    `json:"pid"` // 0 if invisible to the serving plugin
	Role      string   `json:"role"`
	Protocol  string   `json:"protocol"`
	Version   string   `json:"version,omitempty"` // of the program
	Resources []string `json:"resources"`
}

// Resource is an extended resource with its devices.
type Resource struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Connected bool     `json:"connected"` // the plugin of the resource is connected
	Devices   []Device `json:"devices"`
	// whether the kubelet knows the devices of the resource; nil if unknown
	Registered *bool `json:"registered,omitempty"`
}

// NewStatus returns the status of an answer.
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

// isDRA reports whether the node is in mode DRA.
func (s Status) isDRA() bool { return s.Mode == string(mode.DRA) }

func protocolText(major, minor uint32) string { return fmt.Sprintf("%d.%d", major, minor) }

// rows returns the devices of all resources by switch, in the order of the resources.
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

// Devices returns all devices of the plugins.
func (s Status) Devices() string {
	var all strings.Builder
	for _, row := range s.rows() {
		fmt.Fprintln(&all, row.resource, row.ID, row.Address)
	}
	return all.String()
}

// Alignment is the policy for containers with pairs that are not on one switch.
type Alignment struct {
	Policy      string `json:"policy"`           // of pods without annotation: "preferred" or "required"
	Annotations bool   `json:"annotations"`      // tandem.dev/alignment of pods is enforced
	Source      string `json:"source,omitempty"` // of the annotations
	Why         string `json:"why,omitempty"`    // annotations are not enforced
}

func alignmentOf(answer *api.StatusResponse) *Alignment {
	a := answer.GetAlignment()
	if a == nil {
		return nil
	}
	return &Alignment{a.GetPolicy(), a.GetAnnotations(), a.GetSource(), a.GetWhy()}
}

// Unenforced returns the reason why annotations are not enforced, "" if enforced or unknown.
func (a *Alignment) Unenforced() string {
	if a == nil || a.Annotations {
		return ""
	}
	return fmt.Sprintf("annotation %s of pods is not enforced on this node: %s", intent.AlignmentKey, a.Why)
}
