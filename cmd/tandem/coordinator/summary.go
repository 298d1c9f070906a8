// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/picture"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Table returns the state of the node for people: the totals, and a line for each switch.
func (s Status) Table() *cli.Text {
	var out cli.Text
	s.writeHead(&out)
	lines := s.groupBySwitch()
	if len(lines) > 0 {
		out.Line()
		out.Row("SWITCH", "NUMA", "FREE GPUS", "FREE VFS", "OWNERS")
	}
	for _, line := range lines {
		out.Row(cmp.Or(line.name, "?"), cmp.Or(strings.Join(line.nodes, ","), "-"), line.gpus, line.vfs,
			line.describeOwners())
	}
	return &out
}

// WideTable returns a line for each device, by switch. There is no column of addresses if the IDs have them.
func (s Status) WideTable() *cli.Text {
	var out cli.Text
	s.writeHead(&out)
	rows := s.deviceRows()
	addresses := slices.ContainsFunc(rows, deviceRow.addressApart)
	write := func(cells ...any) {
		if !addresses {
			cells = slices.Delete(cells, 4, 5)
		}
		out.Row(cells...)
	}
	if len(rows) > 0 {
		out.Line()
		write("SWITCH", "NUMA", "RESOURCE", "DEVICE", "ADDRESS", "STATE", "OWNER")
	}
	for i, r := range rows {
		name, address := cmp.Or(r.Switch, "?"), "-"
		if i > 0 && rows[i-1].Switch == r.Switch {
			name = ""
		}
		if r.addressApart() {
			address = r.Address
		}
		write(name, numaText(r.NUMA), r.resource, r.ID, address, r.stateText(), r.ownerText())
	}
	return &out
}

// writeHead writes a line of totals, then the plugins, then the faults.
func (s Status) writeHead(w *cli.Text) {
	parts := s.summaryParts()
	last := parts[len(parts)-1]
	w.Line(strings.Join(parts[:len(parts)-1], ", "), "; ", verdicts[last].Of(last))
	for _, p := range s.Plugins {
		pid := "in another PID namespace"
		if p.PID != 0 {
			pid = fmt.Sprint("PID ", p.PID)
		}
		version := cmp.Or(p.Version, "version ?")
		if s.isDRA() {
			fmt.Fprintf(w, "mode dra: the scheduler allocates; driver %s, %s, protocol %s: %s\n", pid, version,
				p.Protocol, strings.Join(p.Resources, ", "))
			continue
		}
		w.Line(fmt.Sprintf("plugin %s, %s, %s, protocol %s: ", pid, p.Role, version, p.Protocol),
			s.listRegistrations(p.Resources))
	}
	for _, r := range s.Resources {
		if !r.Connected {
			w.Line(cli.Doubtful.Of("STALE"), fmt.Sprintf(" %s: its plugin is away; %s as they were known last", r.Name,
				cli.Count(len(r.Devices), "device")))
		}
	}
	if s.Kubelet.IsDown() {
		w.Line(cli.Bad.Of("KUBELET DOWN"), ": ", s.Kubelet.Why, "; owners are those known last")
	}
	if text := s.Alignment.WhyUnenforced(); text != "" {
		w.Line(cli.Doubtful.Of("NOT ENFORCED"), " ", text)
	}
	for _, note := range s.Notes {
		w.Line("NOTE ", note)
	}
	for _, d := range s.Degraded {
		w.Line(cli.Doubtful.Of("DEGRADED"), " ", d)
	}
	for _, text := range s.ListUnsound() {
		w.Line(cli.Doubtful.Of("HEALTH"), " ", text)
	}
}

// summaryParts returns the totals, then the state of the kubelet.
func (s Status) summaryParts() []string {
	t, state := s.Totals, "?"
	if s.Kubelet != nil && s.Kubelet.State != kubeletUnknown {
		state = s.Kubelet.State
	}
	return []string{
		fmt.Sprintf("GPUs free %s", t.GPUs), fmt.Sprintf("VFs free %s", t.VFs),
		fmt.Sprintf("same-switch pairs left %d", t.Pairs), fmt.Sprintf("degraded containers %d", len(s.Degraded)),
		"kubelet " + state,
	}
}

// verdicts are those of states and of health.
var verdicts = map[string]cli.Verdict{
	"kubelet " + kubeletUp: cli.Good, "kubelet " + kubeletDown: cli.Bad, notRegistered: cli.Doubtful,
	device.Failed: cli.Bad, device.Degraded: cli.Doubtful,
	string(picture.Unhealthy): cli.Bad, string(picture.AllocatedUnhealthy): cli.Bad,
}

// notRegistered is the state of a resource whose devices the kubelet does not use.
const notRegistered = "NOT REGISTERED"

// listRegistrations lists resources, and whether the kubelet uses their devices.
func (s Status) listRegistrations(resources []string) cli.Cell {
	said := map[string]string{}
	for _, r := range s.Resources {
		switch {
		case r.Registered == nil:
			said[r.Name] = "registered ?"
		case *r.Registered:
			said[r.Name] = "registered"
		default:
			said[r.Name] = notRegistered
		}
	}
	var list []any
	for _, name := range resources {
		state := cmp.Or(said[name], "registered ?")
		list = append(list, cli.NewCell(name, " ", verdicts[state].Of(state)))
	}
	return cli.JoinCells(list, ", ")
}

// unsound is a group of devices that are failed or degraded for one reason.
type unsound struct{ health, reason, resource string }

// ListUnsound returns a text for each group of failed and degraded devices, failed ones first.
func (s Status) ListUnsound() (list []cli.Cell) {
	groups := map[unsound][]string{}
	for _, r := range s.deviceRows() {
		if r.Health != "" {
			of := unsound{r.Health, r.Reason, r.resource}
			groups[of] = append(groups[of], r.ID)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(groups), func(a, b unsound) int {
		return cmp.Or(cmp.Compare(b.health, a.health), cmp.Compare(a.resource, b.resource),
			cmp.Compare(a.reason, b.reason))
	}) {
		ids := groups[of]
		slices.Sort(ids)
		list = append(list, cli.NewCell(cli.Count(len(ids), "device"), " of ", of.resource, " ",
			verdicts[of.health].Of(of.health), ": ", of.reason, ": ", shortList(ids)))
	}
	return list
}

// shortList names the first IDs of a list.
func shortList(ids []string) string {
	const few = 4
	text := strings.Join(ids[:min(few, len(ids))], " ")
	if more := len(ids) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// addressApart reports whether the ID lacks the address.
func (r deviceRow) addressApart() bool { return !strings.Contains(r.ID, r.Address) }

func (r deviceRow) stateText() cli.Cell {
	text := cli.NewCell(verdicts[string(r.State)].Of(r.State))
	if r.Health != "" {
		text = cli.NewCell(text, " (", verdicts[r.Health].Of(r.Health), ": ", r.Reason, ")")
	}
	if r.stale {
		text = cli.NewCell(text, " (stale)")
	}
	return text
}

func (r deviceRow) ownerText() string {
	if r.Ended != "" {
		return r.Ended + " (ended)"
	}
	return cmp.Or(r.Owner, "-")
}

// switchRow is a switch with its devices.
type switchRow struct {
	counts
	name   string
	nodes  []string // NUMA nodes as told to the kubelet, sorted
	owners []string // sorted
	marks  map[string]*counts
}

// marks are the named states, in order.
var marks = []string{
	string(picture.Planned), string(picture.Unhealthy), string(picture.AllocatedUnhealthy), device.Degraded,
	"of ended containers", "stale",
}

func (s Status) groupBySwitch() (lines []*switchRow) {
	for _, r := range s.deviceRows() {
		if len(lines) == 0 || lines[len(lines)-1].name != r.Switch {
			lines = append(lines, &switchRow{name: r.Switch, marks: map[string]*counts{}})
		}
		lines[len(lines)-1].addDevice(r)
	}
	return lines
}

func (l *switchRow) addDevice(r deviceRow) {
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

func (l *switchRow) markRow(name string, r deviceRow) {
	if l.marks[name] == nil {
		l.marks[name] = &counts{}
	}
	l.marks[name].addRow(r)
}

// describeOwners returns the first owners, and the numbers of devices in the states of marks.
func (l *switchRow) describeOwners() cli.Cell {
	const few = 2
	var said []any
	for _, owner := range l.owners[:min(few, len(l.owners))] {
		said = append(said, owner)
	}
	if more := len(l.owners) - few; more > 0 {
		said = append(said, fmt.Sprintf("%d more", more))
	}
	for _, mark := range marks {
		if c := l.marks[mark]; c != nil {
			said = append(said, cli.NewCell("(", c.listCounts(), " ", verdicts[mark].Of(mark), ")"))
		}
	}
	return cli.JoinCells(said, " ")
}

// numaText returns the number of a NUMA node, "-" for devices without one.
func numaText(node topology.NUMANode) string {
	if _, known := node.Number(); !known {
		return "-"
	}
	return node.String()
}

// insertSorted adds a text to a sorted list, once.
func insertSorted(list []string, s string) []string {
	if i, found := slices.BinarySearch(list, s); !found {
		return slices.Insert(list, i, s)
	}
	return list
}
