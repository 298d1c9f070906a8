// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Table is for people who want to see how the node is: the totals, and a line for each switch.
func (s Status) Table() []byte {
	var out cli.Text
	s.writeHead(&out)
	lines := s.groupBySwitch()
	if len(lines) > 0 {
		out.Row("\nSWITCH", "NUMA", "FREE GPUS", "FREE VFS", "OWNERS")
	}
	for _, line := range lines {
		out.Row(cmp.Or(line.name, "?"), cmp.Or(strings.Join(line.nodes, ","), "-"), line.gpus, line.vfs,
			line.describeOwners())
	}
	return out.Bytes()
}

// WideTable has every device, by switch. Where all IDs are addresses there is no column for those.
func (s Status) WideTable() []byte {
	var out cli.Text
	s.writeHead(&out)
	rows := s.deviceRows()
	addresses := slices.ContainsFunc(rows, row.addressApart)
	line := func(name, numa, resource, id, address, state, owner string) {
		if addresses {
			out.Row(name, numa, resource, id, address, state, owner)
		} else {
			out.Row(name, numa, resource, id, state, owner)
		}
	}
	if len(rows) > 0 {
		line("\nSWITCH", "NUMA", "RESOURCE", "DEVICE", "ADDRESS", "STATE", "OWNER")
	}
	for i, r := range rows {
		name, address := cmp.Or(r.Switch, "?"), "-"
		if i > 0 && rows[i-1].Switch == r.Switch {
			name = ""
		}
		if r.addressApart() {
			address = r.Address
		}
		line(name, numaText(r.NUMA), r.resource, r.ID, address, r.stateText(), r.ownerText())
	}
	return out.Bytes()
}

// addressApart reports whether the ID does not tell the address.
func (r row) addressApart() bool { return !strings.Contains(r.ID, r.Address) }

func (r row) stateText() string {
	text := string(r.State)
	if r.Health != "" {
		text += " (" + r.Health + ": " + r.Reason + ")"
	}
	if r.stale {
		text += " (stale)"
	}
	return text
}

func (r row) ownerText() string {
	if r.Ended != "" {
		return r.Ended + " (ended)"
	}
	return cmp.Or(r.Owner, "-")
}

// line is a switch.
type line struct {
	counts
	name   string
	nodes  []string // NUMA nodes as told to the kubelet, sorted
	owners []string // sorted
	marks  map[string]*counts
}

// marks are the states that are named, in this order.
var marks = []string{
	string(picture.Planned), string(picture.Unhealthy), string(picture.AllocatedUnhealthy), device.Degraded,
	"of ended containers", "stale",
}

func (s Status) groupBySwitch() (lines []*line) {
	for _, r := range s.deviceRows() {
		if len(lines) == 0 || lines[len(lines)-1].name != r.Switch {
			lines = append(lines, &line{name: r.Switch, marks: map[string]*counts{}})
		}
		lines[len(lines)-1].addToLine(r)
	}
	return lines
}

func (l *line) addToLine(r row) {
	l.addRow(r)
	if _, known := r.NUMA.Number(); known {
		l.nodes = insertSorted(l.nodes, r.NUMA.String())
	}
	if r.Owner != "" {
		l.owners = insertSorted(l.owners, r.Owner)
	}
	mark := string(r.State)
	switch {
	case r.stale:
		mark = "stale"
	case r.Ended != "":
		mark = "of ended containers"
	}
	l.markRow(mark, r)
	if r.Health == device.Degraded {
		l.markRow(r.Health, r)
	}
}

func (l *line) markRow(name string, r row) {
	if l.marks[name] == nil {
		l.marks[name] = &counts{}
	}
	l.marks[name].addRow(r)
}

// describeOwners are the owners in short, and what else is to be known of the devices.
func (l *line) describeOwners() string {
	const few = 2
	said := slices.Clone(l.owners[:min(few, len(l.owners))])
	if more := len(l.owners) - few; more > 0 {
		said = append(said, fmt.Sprintf("%d more", more))
	}
	for _, mark := range marks {
		if c := l.marks[mark]; c != nil {
			said = append(said, "("+c.listCounts()+" "+mark+")")
		}
	}
	return cmp.Or(strings.Join(said, " "), "-")
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

func newDevice(d *api.DeviceStatus, inPlan bool) Device {
	one := Device{
		ID: d.GetDevice().GetId(), Address: d.GetDevice().GetAddress(), Switch: d.GetSwitch(),
		NUMA: device.NUMANode(d.GetDevice()), State: picture.Free, Owner: ownerText(d.GetOwner()),
		Ended: ownerText(d.GetEnded()), Health: device.Health(d.GetDevice()), Reason: d.GetDevice().GetReason(),
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

func ownerText(o *api.Owner) string {
	if o == nil {
		return ""
	}
	if o.GetNamespace() == "" {
		return o.GetPod() + "/" + o.GetContainer() // of which no more is known
	}
	return o.GetNamespace() + "/" + o.GetPod() + "/" + o.GetContainer()
}

// row is a device with what is to be known of its resource.
type row struct {
	Device
	resource string
	kind     device.Kind
	stale    bool // its plugin is away: it is as it was known last
}

// isFree reports whether a container can get it now.
func (r row) isFree() bool {
	return !r.stale && (r.State == picture.Free || r.State == picture.Stranded)
}

// numaText returns the number of a NUMA node, "-" for devices without one.
func numaText(node topology.NUMANode) string {
	if _, known := node.Number(); !known {
		return "-"
	}
	return node.String()
}

// insertSorted adds to a sorted list what it does not have yet.
func insertSorted(list []string, s string) []string {
	if i, found := slices.BinarySearch(list, s); !found {
		return slices.Insert(list, i, s)
	}
	return list
}

// Totals counts devices as the kubelet does: every partition, every VF and every replica is one.
type Totals struct {
	GPUs  Count `json:"gpus"`
	VFs   Count `json:"vfs"`
	Pairs int   `json:"pairs"` // that the free devices make on one switch each
}

// Add counts those of another node too.
func (t *Totals) Add(other Totals) {
	t.GPUs.Free, t.GPUs.All = t.GPUs.Free+other.GPUs.Free, t.GPUs.All+other.GPUs.All
	t.VFs.Free, t.VFs.All = t.VFs.Free+other.VFs.Free, t.VFs.All+other.VFs.All
	t.Pairs += other.Pairs
}

// Count is of devices of one kind.
type Count struct {
	Free int `json:"free"` // those that a container can get now
	All  int `json:"all"`
}

func (c *Count) addRow(r row) {
	c.All++
	if r.isFree() {
		c.Free++
	}
}

// String returns "free/all", "-" if no device is offered.
func (c Count) String() string {
	if c.All == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.Free, c.All)
}

// counts are those of one switch.
type counts struct{ gpus, vfs Count }

func (c *counts) addRow(r row) {
	if r.kind == device.GPU {
		c.gpus.addRow(r)
	} else {
		c.vfs.addRow(r)
	}
}

func totalsOf(rows []row) (t Totals) {
	switches, all := map[string]*counts{}, counts{}
	for _, r := range rows {
		if switches[r.Switch] == nil {
			switches[r.Switch] = &counts{}
		}
		switches[r.Switch].addRow(r)
		all.addRow(r)
	}
	for name, c := range switches {
		if topology.IsSwitch(name) {
			t.Pairs += min(c.gpus.Free, c.vfs.Free)
		}
	}
	t.GPUs, t.VFs = all.gpus, all.vfs
	return t
}

// degradedPairs is a container with GPUs and VFs that are not all paired on one switch each.
type degradedPairs struct {
	Container string `json:"container"` // namespace/pod/container
	GPUs      int    `json:"gpus"`
	VFs       int    `json:"vfs"`
	Apart     int    `json:"apart"` // GPUs that share no switch with a VF of their own; of shared VFs, with any
}

func degradedOf(resources []*api.Resource) []degradedPairs {
	var list []degradedPairs
	for _, c := range admission.FindDegraded(resources) {
		list = append(list, degradedPairs{ownerText(c.Owner), c.GPUs, c.VFs, c.Apart})
	}
	return list
}

// Pod returns the pod of the container as namespace/pod.
func (d degradedPairs) Pod() string { return podOf(d.Container) }

func (d degradedPairs) String() string {
	return fmt.Sprintf("%s: %d of %d GPUs have no VF on their switch", d.Container, d.Apart, d.GPUs)
}

// listCounts is "1 GPU", "2 VFs" or both.
func (c *counts) listCounts() string {
	var parts []string
	if n := c.gpus.All; n > 0 {
		parts = append(parts, cli.Count(n, "GPU"))
	}
	if n := c.vfs.All; n > 0 {
		parts = append(parts, cli.Count(n, "VF"))
	}
	return strings.Join(parts, ", ")
}
