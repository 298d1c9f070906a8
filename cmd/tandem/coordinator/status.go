// Package coordinator asks the running plugins over their socket, and puts what they answer into words: JSON
// for programs, tables and pictures for people.
package coordinator

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// Status is what the coordinator knows, as -o json prints it.
type Status struct {
	PID       int64      `json:"pid"`      // of the plugin that serves
	Protocol  string     `json:"protocol"` // of the plugin that serves
	Plugins   []Plugin   `json:"plugins"`
	Resources []Resource `json:"resources"`
	// by resource: kept for the second half of a container that is being admitted
	Plan map[string][]string `json:"plan,omitempty"`
}

// Plugin is one of the two processes.
type Plugin struct {
	PID       int64    `json:"pid"` // 0 where it cannot be seen from the serving one
	Role      string   `json:"role"`
	Protocol  string   `json:"protocol"`
	Resources []string `json:"resources"`
}

// Resource is what the kubelet knows devices by.
type Resource struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Connected bool     `json:"connected"` // its plugin is there now
	Devices   []Device `json:"devices"`
}

// Device is a GPU or VF, what became of it and who has it.
type Device struct {
	ID      string  `json:"id"`
	Address string  `json:"address"`
	Switch  string  `json:"switch"`
	NUMA    *uint32 `json:"numa"` // as told to the kubelet
	State   string  `json:"state"`
	Owner   string  `json:"owner,omitempty"` // namespace/pod/container, as far as it is known
}

// NewStatus is the answer to a question for all devices.
func NewStatus(answer *api.StatusResponse) Status {
	s := Status{
		PID: answer.GetPid(), Protocol: protocolText(answer.GetProtocol(), answer.GetMinor()),
		Plugins: []Plugin{}, Resources: []Resource{},
	}
	for _, p := range answer.GetPeers() {
		role := "joined"
		if p.GetServes() {
			role = "serves"
		}
		s.Plugins = append(s.Plugins, Plugin{
			p.GetPid(), role, protocolText(p.GetVersion().GetMajor(), p.GetVersion().GetMinor()), p.GetResources(),
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
	return s
}

func protocolText(major, minor uint32) string { return fmt.Sprintf("%d.%d", major, minor) }

func newDevice(d *api.DeviceStatus, planned bool) Device {
	device := Device{
		ID: d.GetDevice().GetId(), Address: d.GetDevice().GetAddress(), Switch: d.GetSwitch(),
		NUMA: d.GetDevice().Numa, State: "free", Owner: ownerText(d.GetOwner()),
	}
	switch {
	case d.GetAllocated() && !d.GetDevice().GetHealthy():
		device.State = "allocated, unhealthy"
	case d.GetAllocated():
		device.State = "allocated"
	case !d.GetDevice().GetHealthy():
		device.State = "unhealthy"
	case planned:
		device.State = "planned"
	case d.GetStranded():
		device.State = "stranded"
	}
	return device
}

func ownerText(o *api.Owner) string {
	if o == nil {
		return ""
	}
	return o.GetNamespace() + "/" + o.GetPod() + "/" + o.GetContainer()
}

// Table has the plugins, then the devices by switch.
func (s Status) Table() []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PLUGIN\tROLE\tPROTOCOL\tRESOURCES")
	for _, p := range s.Plugins {
		pid := "in another PID namespace"
		if p.PID != 0 {
			pid = fmt.Sprint("PID ", p.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", pid, p.Role, p.Protocol, strings.Join(p.Resources, " "))
	}
	fmt.Fprintln(w)
	w.Flush() // into memory
	fmt.Fprintln(w, "SWITCH\tNUMA\tRESOURCE\tDEVICE\tADDRESS\tSTATE\tOWNER")
	rows := s.rows()
	for i, row := range rows {
		name := row.Switch
		if i > 0 && rows[i-1].Switch == name {
			name = ""
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, numaText(row.NUMA), row.resource, row.ID, row.Address,
			row.State, cmp.Or(row.Owner, "-"))
	}
	w.Flush() // into memory
	return out.Bytes()
}

type row struct {
	Device
	resource string
}

// rows are the devices of all resources by switch; within one they keep their order.
func (s Status) rows() []row {
	var rows []row
	for _, r := range s.Resources {
		name := r.Name
		if !r.Connected {
			name += " (plugin away)"
		}
		for _, d := range r.Devices {
			rows = append(rows, row{d, name})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.Switch, b.Switch) })
	return rows
}

func numaText(node *uint32) string {
	if node == nil {
		return "-"
	}
	return fmt.Sprint(*node)
}

// Devices names all that the plugins have.
func (s Status) Devices() string {
	var all strings.Builder
	for _, row := range s.rows() {
		fmt.Fprintln(&all, row.resource, row.ID, row.Address)
	}
	return all.String()
}
