// SPDX-License-Identifier: Apache-2.0

// Package coordinator asks the running plugins over their socket, and renders the answers: status, decisions
// and rejected pods as JSON for programs and as tables for people, the node as a live page.
package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/topology"
)

// Status is the coordinator's status, as printed by -o json.
type Status struct {
	Version   cli.V1          `json:"version"`
	PID       int64           `json:"pid"`      // of the serving plugin
	Protocol  string          `json:"protocol"` // of the serving plugin
	Mode      string          `json:"mode"`     // of the node: "device-plugin" or "dra"
	Plugins   []pluginProcess `json:"plugins"`  // by their resources
	Resources []Resource      `json:"resources"`
	// by resource: reserved for the second half of the container in admission
	Plan     map[string][]string `json:"plan,omitempty"`
	Totals   Totals              `json:"totals"`
	Degraded []degradedPairs     `json:"degraded,omitempty"` // by container
	// the kubelet's own answer; nil without a question
	Kubelet *Kubelet `json:"kubelet,omitempty"`
	// the policy for pairs that are not on one switch; nil if the plugin reports none
	Alignment *alignmentPolicy `json:"alignment,omitempty"`
	Notes     []string         `json:"notes,omitempty"` // limitations of the daemon, with reasons
}

// pluginProcess is a plugin's process.
type pluginProcess struct {
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

// Device is a GPU or VF with its state and its owner.
type Device struct {
	ID      string            `json:"id"`
	Address string            `json:"address"`
	Switch  string            `json:"switch"`
	NUMA    topology.NUMANode `json:"numa"` // the NUMA node in the plugin's TopologyInfo
	State   picture.State     `json:"state"`
	Health  string            `json:"health,omitempty"` // "failed", or "degraded": chosen last; absent from a good device
	Reason  string            `json:"reason,omitempty"` // for the health
	Owner   string            `json:"owner,omitempty"`  // namespace/pod/container, if known
	// the ended container that had the device; the kubelet frees the device at its next allocation
	Ended string `json:"ended,omitempty"`
}

// alignmentPolicy is the policy for containers with pairs that are not on one switch.
type alignmentPolicy struct {
	Policy      string `json:"policy"`           // of pods without annotation: "preferred" or "required"
	Annotations bool   `json:"annotations"`      // tandem.dev/alignment of pods is enforced
	Source      string `json:"source,omitempty"` // of the annotations
	Why         string `json:"why,omitempty"`    // annotations are not enforced
}

// NewStatus returns the status of an answer.
func NewStatus(answer *api.StatusResponse) Status {
	s := Status{
		PID: answer.GetPid(), Protocol: protocolText(answer.GetProtocol(), answer.GetMinor()),
		Mode: cmp.Or(answer.GetMode(), string(coordination.DevicePlugin)), Notes: answer.GetNotes(),
		Plugins: []pluginProcess{}, Resources: []Resource{},
	}
	for _, p := range answer.GetPeers() {
		role := "joined"
		if p.GetServes() {
			role = "serves"
		}
		s.Plugins = append(s.Plugins, pluginProcess{
			PID: p.GetPid(), Role: role, Version: p.GetVersion().GetBuild(), Resources: p.GetResources(),
			Protocol: protocolText(p.GetVersion().GetMajor(), p.GetVersion().GetMinor()),
		})
	}
	slices.SortStableFunc(s.Plugins, func(a, b pluginProcess) int {
		return slices.Compare(a.Resources, b.Resources)
	})
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
	s.Totals, s.Degraded = totalsOf(s.deviceRows()), degradedOf(answer.GetResources())
	s.Alignment = alignmentOf(answer)
	return s
}

func newDevice(d *api.DeviceStatus, inPlan bool) Device {
	one := Device{
		ID: d.GetDevice().GetId(), Address: d.GetDevice().GetAddress(), Switch: d.GetSwitch(),
		NUMA: device.NUMANode(d.GetDevice()), State: picture.Free, Owner: formatOwner(d.GetOwner()),
		Ended: formatOwner(d.GetEnded()), Health: device.Health(d.GetDevice()), Reason: d.GetDevice().GetReason(),
	}
	switch {
	case d.GetAllocated() && !d.GetDevice().GetHealthy():
		one.State = picture.AllocatedUnhealthy
	case d.GetAllocated():
		one.State = picture.Allocated
	case !d.GetDevice().GetHealthy():
		one.State = picture.Unhealthy
	case inPlan:
		one.State = picture.Planned
	case d.GetStranded():
		one.State = picture.Stranded
	}
	return one
}

func formatOwner(o *api.Owner) string {
	if o == nil {
		return ""
	}
	if o.GetNamespace() == "" {
		return o.GetPod() + "/" + o.GetContainer() // of which no more is known
	}
	return o.GetNamespace() + "/" + o.GetPod() + "/" + o.GetContainer()
}

func protocolText(major, minor uint32) string { return fmt.Sprintf("%d.%d", major, minor) }

func alignmentOf(answer *api.StatusResponse) *alignmentPolicy {
	a := answer.GetAlignment()
	if a == nil {
		return nil
	}
	return &alignmentPolicy{a.GetPolicy(), a.GetAnnotations(), a.GetSource(), a.GetWhy()}
}

// WhyUnenforced returns the reason why annotations are not enforced, "" if enforced or unknown.
func (a *alignmentPolicy) WhyUnenforced() string {
	if a == nil || a.Annotations {
		return ""
	}
	return fmt.Sprintf("annotation %s of pods is not enforced on this node: %s", intent.AlignmentKey, a.Why)
}

// isDRA reports whether the node is in mode DRA.
func (s Status) isDRA() bool { return s.Mode == string(coordination.DRA) }

// IsHealthy reports whether the plugin of the device reports the device as healthy.
func (d Device) IsHealthy() bool {
	return d.State != picture.Unhealthy && d.State != picture.AllocatedUnhealthy
}

// Holder returns the container that has the device, [unknownHolder] or "" for none.
func (d Device) Holder() string {
	if d.State != picture.Allocated && d.State != picture.AllocatedUnhealthy {
		return ""
	}
	return cmp.Or(d.Owner, unknownHolder)
}

// unknownHolder is the holder of a device whose container is unknown.
const unknownHolder = "?"

// deviceRow is a device with what is to be known of its resource.
type deviceRow struct {
	Device
	resource string
	kind     device.Kind
	stale    bool // its plugin is away: it is as it was known last
}

// isFree reports whether a container can get it now.
func (r deviceRow) isFree() bool {
	return !r.stale && (r.State == picture.Free || r.State == picture.Stranded)
}

// deviceRows returns the devices of all resources by switch, in the order of the resources.
func (s Status) deviceRows() []deviceRow {
	var rows []deviceRow
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			rows = append(rows, deviceRow{d, r.Name, device.Kind(r.Kind), !r.Connected})
		}
	}
	slices.SortStableFunc(rows, func(a, b deviceRow) int { return cmp.Compare(a.Switch, b.Switch) })
	return rows
}

// ListDevices returns all devices of the plugins.
func (s Status) ListDevices() string {
	var all strings.Builder
	for _, r := range s.deviceRows() {
		fmt.Fprintln(&all, r.resource, r.ID, r.Address)
	}
	return all.String()
}
