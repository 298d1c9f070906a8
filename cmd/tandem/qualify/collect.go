// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// evidence is the data of a node. Nil is unknown, except for the machine.
type evidence struct {
	Tandem   string // version of the program
	System   nodeSystem
	Machine  *recording.Machine
	Findings []doctor.Finding
	Status   *coordinator.Status
	Choices  []pools.Choice // of config.json
	NCCL     *nccl.File
	Verified []*verify.Verification // by container
}

// newReport returns the report of a node. It is an error if the machine cannot be read, or if a verification
// is of another machine.
func newReport(e evidence) (*Report, error) {
	r := &Report{Tandem: e.Tandem, System: e.System, Findings: []foundID{}}
	var text bytes.Buffer
	if _, err := e.Machine.WriteTo(&text); err != nil {
		return nil, err
	}
	r.Machine = strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	n, err := r.readMachine()
	if err != nil {
		return nil, err
	}
	for _, f := range e.Findings {
		r.Findings = append(r.Findings, foundID{f.ID, string(f.Severity)})
	}
	if e.Status != nil {
		r.Offer = offerOf(e.Status, e.Choices)
	}
	r.Plans, err = makePlans(n)
	if err != nil {
		return nil, err
	}
	if e.NCCL != nil {
		r.NCCL = ncclOf(e.NCCL, n)
	}
	for _, v := range e.Verified {
		measured, err := trafficOf(v, n)
		if err != nil {
			return nil, err
		}
		r.Traffic = append(r.Traffic, measured)
	}
	if err := r.checkSize(); err != nil {
		return nil, err
	}
	r.judgeParts(n, r.Plans)
	return r, nil
}

// readMachine reads the machine of the report.
func (r *Report) readMachine() (*machine.Node, error) {
	m, err := recording.Parse(strings.NewReader(strings.Join(r.Machine, "\n") + "\n"))
	if err != nil {
		return nil, fmt.Errorf("read the machine of the report: %w", err)
	}
	return machine.ReadFS(m.FS(), &machine.Source{Recording: "report"})
}

// offerOf leaves out the IDs, because those of NVIDIA's GPUs are UUIDs, and the names of the resources.
func offerOf(s *coordinator.Status, choices []pools.Choice) *pluginOffer {
	o := &pluginOffer{
		Mode:    knownWord(s.Mode, string(coordination.DevicePlugin), string(coordination.DRA)),
		Devices: []offeredDevice{},
	}
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			address, err := topology.ParseAddress(d.Address)
			if err != nil {
				continue // a device without a PCI function
			}
			o.Devices = append(o.Devices, offeredDevice{
				Kind: knownWord(r.Kind, string(device.GPU), string(device.VF)), Address: address, NUMA: d.NUMA,
				Health: knownWord(d.Health, "", device.Failed, device.Degraded),
			})
		}
	}
	slices.SortStableFunc(o.Devices, func(a, b offeredDevice) int { return a.Address.Compare(b.Address) })
	var pools []string
	for _, c := range choices {
		if !slices.Contains(pools, c.Resource) {
			pools = append(pools, c.Resource)
		}
		pool := slices.Index(pools, c.Resource) + 1
		for _, reason := range c.Reasons {
			o.Rejected = append(o.Rejected, rejectedDevices{pool, c.Selector, reason.Key, reason.Count})
		}
	}
	return o
}

// knownWord returns a word of a daemon, or "unknown" for another one than these.
func knownWord(word string, words ...string) string {
	if slices.Contains(words, word) {
		return word
	}
	return "unknown"
}

// ncclOf returns the places of the machine's GPUs and NICs. A function that the machine lacks counts as a
// NIC, so that Judge finds the difference.
func ncclOf(f *nccl.File, n *machine.Node) *ncclPlaces {
	all := &ncclPlaces{GPUs: []nccl.Function{}, NICs: []nccl.Function{}}
	for _, function := range f.Functions() {
		function.Bridges = append([]topology.Address{}, function.Bridges...) // in JSON no null
		d, ok := n.Tree.Device(function.Address)
		switch {
		case ok && slices.Contains(n.GPUs, d):
			all.GPUs = append(all.GPUs, function)
		case !ok || d.IsNIC():
			all.NICs = append(all.NICs, function)
		}
	}
	return all
}

// trafficOf returns the traffic of a verification without texts of the container.
func trafficOf(v *verify.Verification, n *machine.Node) (measuredTraffic, error) {
	t := measuredTraffic{
		Failures: len(v.Failures), Places: append([]machine.Pair{}, v.Pairs...), Pairs: []measuredPair{},
	}
	if v.Traffic == nil {
		return t, fmt.Errorf("read verification: it has no traffic: run tandem verify with --traffic")
	}
	t.Seconds, t.Direction = v.Traffic.Seconds, v.Traffic.KnownDirection()
	for _, p := range v.Traffic.Pairs {
		t.Pairs = append(t.Pairs, measuredPair{p.Pair, p.KnownSpeed(), p.IsGood()})
	}
	return t, t.checkDevices(n)
}

// checkDevices returns an error for a device that the machine lacks.
func (t *measuredTraffic) checkDevices(n *machine.Node) error {
	known := map[string]bool{"": true}
	for _, d := range n.GPUDevices() {
		known[d.ID] = true
	}
	pairs := slices.Clone(t.Places)
	for _, p := range t.Pairs {
		pairs = append(pairs, p.Pair)
	}
	for _, p := range pairs {
		address, err := topology.ParseAddress(p.VF)
		vf, ok := n.Tree.Device(address)
		if !known[p.GPU] || err != nil || !ok || !vf.IsNIC() {
			return fmt.Errorf("read verification: this machine has no GPU %q or no VF %q: is the file from another "+
				"node?", p.GPU, p.VF)
		}
	}
	return nil
}

// addressOf returns the PCI function of a GPU, partition or VF by its ID; the zero address if unknown.
func addressOf(n *machine.Node, id string) topology.Address {
	for _, d := range n.GPUDevices() {
		if d.ID == id {
			return d.Address
		}
	}
	address, _ := topology.ParseAddress(id) // an ID of check is one or the other
	return address
}

// numbers matches the numbers of a version. What follows in the version of a kernel can name an organisation.
var numbers = regexp.MustCompile(`\d+\.\d+(\.\d+)*`)

// longest is the greatest number of bytes of a name.
const longest = 64

// readSystem reads the names and versions of this node: the firmware's in sysfs, the kernel's in procfs.
// Unreadable ones are empty.
func readSystem(sysfsRoot, procRoot string) nodeSystem {
	version := func(elements ...string) string { return numbers.FindString(firstLine(elements...)) }
	name := func(file string) string {
		text := firstLine(sysfsRoot, "class/dmi/id", file)
		return strings.TrimSpace(text[:min(len(text), longest)])
	}
	return nodeSystem{
		Vendor:       name("sys_vendor"),
		Product:      name("product_name"),
		Architecture: runtime.GOARCH,
		Kernel:       version(procRoot, "sys/kernel/osrelease"),
		NVIDIA:       version(procRoot, "driver/nvidia/version"), // "… Kernel Module for x86_64  580.65.06  …"
		AMD:          version(sysfsRoot, "module/amdgpu/version"),
	}
}

// firstLine returns the first line of a file without unusual characters; "" for an unreadable file.
func firstLine(elements ...string) string {
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strings.Map(func(r rune) rune {
		if r >= unicode.MaxASCII || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, first)
}
