// SPDX-License-Identifier: Apache-2.0

// Package coordinator asks the running plugins over their socket, and renders the answers: status, decisions
// and rejected pods as JSON for programs and as tables for people, the node as a live page.
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
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

// isDRA reports whether the node is in mode DRA.
func (s Status) isDRA() bool { return s.Mode == string(coordination.DRA) }

func protocolText(major, minor uint32) string { return fmt.Sprintf("%d.%d", major, minor) }

// deviceRows returns the devices of all resources by switch, in the order of the resources.
func (s Status) deviceRows() []row {
	var rows []row
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			rows = append(rows, row{d, r.Name, device.Kind(r.Kind), !r.Connected})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.Switch, b.Switch) })
	return rows
}

// ListDevices returns all devices of the plugins.
func (s Status) ListDevices() string {
	var all strings.Builder
	for _, row := range s.deviceRows() {
		fmt.Fprintln(&all, row.resource, row.ID, row.Address)
	}
	return all.String()
}

// alignmentPolicy is the policy for containers with pairs that are not on one switch.
type alignmentPolicy struct {
	Policy      string `json:"policy"`           // of pods without annotation: "preferred" or "required"
	Annotations bool   `json:"annotations"`      // tandem.dev/alignment of pods is enforced
	Source      string `json:"source,omitempty"` // of the annotations
	Why         string `json:"why,omitempty"`    // annotations are not enforced
}

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

// writeHead is a line of totals, then the plugins, then what is not as it should be.
func (s Status) writeHead(w io.Writer) {
	parts := s.summaryParts()
	fmt.Fprintf(w, "%s; %s\n", strings.Join(parts[:len(parts)-1], ", "), parts[len(parts)-1])
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
		fmt.Fprintf(w, "plugin %s, %s, %s, protocol %s: %s\n", pid, p.Role, version, p.Protocol,
			s.listRegistrations(p.Resources))
	}
	for _, r := range s.Resources {
		if !r.Connected {
			fmt.Fprintf(w, "STALE %s: its plugin is away; %s as they were known last\n", r.Name,
				cli.Count(len(r.Devices), "device"))
		}
	}
	if s.Kubelet.IsDown() {
		fmt.Fprintf(w, "KUBELET DOWN: %s; owners are those known last\n", s.Kubelet.Why)
	}
	if text := s.Alignment.WhyUnenforced(); text != "" {
		fmt.Fprintln(w, "NOT ENFORCED", text)
	}
	for _, note := range s.Notes {
		fmt.Fprintln(w, "NOTE", note)
	}
	for _, d := range s.Degraded {
		fmt.Fprintln(w, "DEGRADED", d)
	}
	for _, text := range s.ListUnsound() {
		fmt.Fprintln(w, "HEALTH", text)
	}
}

// summaryParts is the totals, then the kubelet.
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

// listRegistrations says of each resource whether the kubelet goes by it.
func (s Status) listRegistrations(resources []string) string {
	said := map[string]string{}
	for _, r := range s.Resources {
		switch {
		case r.Registered == nil:
			said[r.Name] = "registered ?"
		case *r.Registered:
			said[r.Name] = "registered"
		default:
			said[r.Name] = "NOT REGISTERED"
		}
	}
	var list []string
	for _, name := range resources {
		list = append(list, name+" "+cmp.Or(said[name], "registered ?"))
	}
	return strings.Join(list, ", ")
}

// unsound is a group of devices that are failed or degraded for one reason.
type unsound struct{ health, reason, resource string }

// ListUnsound returns a text for each group of failed and degraded devices, failed ones first.
func (s Status) ListUnsound() (list []string) {
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
		list = append(list, fmt.Sprintf("%s of %s %s: %s: %s", cli.Count(len(ids), "device"), of.resource,
			of.health, of.reason, shortList(ids)))
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

// kubeletTimeout is how long to wait for the kubelet: it answers in milliseconds, and its limiter lets nobody
// wait longer.
const kubeletTimeout = time.Second

// Kubelet is whether the kubelet answers.
type Kubelet struct {
	State string `json:"state"`         // one of the states of a kubelet
	Why   string `json:"why,omitempty"` // a sentence, where it is not up
}

// IsDown reports whether the kubelet does not answer; nil is an unknown one.
func (k *Kubelet) IsDown() bool { return k != nil && k.State == kubeletDown }

// The states of a kubelet.
const (
	kubeletUp      = "up"
	kubeletDown    = "down"
	kubeletUnknown = "unknown" // who asks does not see its socket
)

// askKubelet asks which devices the kubelet has to give; nil where it does not tell.
func askKubelet(ctx context.Context, dir string) (kubelet.Devices, Kubelet) {
	socket := kubelet.PodResourcesSocket(dir)
	if state := reachSocket(ctx, socket); state.State != kubeletUp {
		return nil, state
	}
	pods, err := kubelet.NewPodResources(dir)
	if err != nil {
		return nil, Kubelet{kubeletUnknown, err.Error()}
	}
	defer pods.Close()
	devices, err := pods.Allocatable(ctx)
	switch code := status.Code(err); {
	case err == nil:
		return devices, Kubelet{State: kubeletUp}
	case code == codes.Unavailable, code == codes.DeadlineExceeded:
		return nil, Kubelet{kubeletDown, "it does not answer at " + socket}
	default: // one that does not tell this
		return nil, Kubelet{State: kubeletUp}
	}
}

// reachSocket tells whether somebody listens at the kubelet's socket.
func reachSocket(ctx context.Context, socket string) Kubelet {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close() // nothing was said
		return Kubelet{State: kubeletUp}
	}
	_, folder := os.Stat(filepath.Dir(socket))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Kubelet{kubeletUnknown, "no right to ask at " + socket}
	case errors.Is(err, fs.ErrNotExist) && folder != nil: // not in this container, maybe
		return Kubelet{kubeletUnknown, "there is no folder " + filepath.Dir(socket)}
	default:
		return Kubelet{kubeletDown, "nobody listens at " + socket}
	}
}
