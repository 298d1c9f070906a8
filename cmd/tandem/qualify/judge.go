// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Verdict is the result of a part.
type Verdict string

// The verdicts.
const (
	passed     Verdict = "passed"
	failed     Verdict = "failed"
	incomplete Verdict = "incomplete" // nothing failed, and evidence is missing
)

// partResult is the verdict on a part of the evidence.
type partResult struct {
	Part    string   `json:"part"`
	Verdict Verdict  `json:"verdict"`
	Summary string   `json:"summary"`
	Details []string `json:"details,omitempty"`
}

// judgement collects the result of a part: it passes until something fails or is missing.
type judgement struct{ partResult }

func newJudgement(part string) *judgement { return &judgement{partResult{Part: part, Verdict: passed}} }

func (j *judgement) fail(format string, args ...any) {
	j.Verdict = failed
	j.Details = append(j.Details, fmt.Sprintf(format, args...))
}

func (j *judgement) miss(format string, args ...any) {
	if j.Verdict == passed {
		j.Verdict = incomplete
	}
	j.Details = append(j.Details, fmt.Sprintf(format, args...))
}

func (j *judgement) note(format string, args ...any) {
	j.Details = append(j.Details, fmt.Sprintf(format, args...))
}

func (j *judgement) summarise(format string, args ...any) partResult {
	j.Summary = fmt.Sprintf(format, args...)
	return j.partResult
}

// Judge derives the results from the evidence, with the placement of this version of Tandem. It is an error
// if the machine cannot be read, or if the lists of the report are too long.
func (r *Report) Judge() error {
	if err := r.checkSize(); err != nil {
		return err
	}
	n, err := r.readMachine()
	if err != nil {
		return err
	}
	now, err := makePlans(n)
	if err != nil {
		return err
	}
	r.judgeParts(n, now)
	return nil
}

// judgeParts judges the evidence by the machine and the plans of this version.
func (r *Report) judgeParts(n *machine.Node, now []pairPlan) {
	r.Results = []partResult{judgeMachine(n), r.judgeFindings(), r.judgeOffer(n), r.judgePlans(n, now),
		r.judgeNCCL(n), r.judgeTraffic(n)}
}

// Worst returns the verdict on all parts.
func (r *Report) Worst() Verdict {
	worst := passed
	for _, result := range r.Results {
		switch result.Verdict {
		case failed:
			return failed
		case incomplete:
			worst = incomplete
		case passed:
		}
	}
	return worst
}

func judgeMachine(n *machine.Node) partResult {
	j := newJudgement("machine")
	nics := n.RDMANICs()
	vfs := 0
	for _, nic := range nics {
		vfs += len(nic.VFs)
	}
	if len(n.GPUs) == 0 {
		j.fail("the machine has no GPU of AMD or NVIDIA")
	}
	if len(nics) == 0 {
		j.fail("the machine has no NIC with RDMA")
	}
	if unread := portsWithoutACS(n.Tree); unread > 0 {
		j.miss("ACS of %s is not recorded: only root reads it; run tandem qualify as root",
			cli.Count(unread, "bridge"))
	}
	for _, note := range n.Notes {
		j.note("%s", note)
	}
	return j.summarise("%s, %s with RDMA, %s", cli.Count(len(n.GPUs), "GPU"),
		cli.Count(len(nics), "NIC"), cli.Count(vfs, "VF"))
}

func portsWithoutACS(t *topology.Tree) (count int) {
	for d := range t.Devices() {
		if d.Class>>8 == topology.PortClass>>8 && d.ACS == topology.ACSUnknown {
			count++
		}
	}
	return count
}

func (r *Report) judgeFindings() partResult {
	j := newJudgement("findings")
	counts := map[string]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
		switch doctor.Severity(f.Severity) {
		case doctor.Error:
			j.fail("%s (error)", f.ID)
		case doctor.Warning:
			j.note("%s (warning)", f.ID)
		default:
			j.miss("%s (%s)", f.ID, f.Severity)
		}
	}
	return j.summarise("errors %d, warnings %d, unknown %d; tandem doctor has the reasons",
		counts[string(doctor.Error)], counts[string(doctor.Warning)], counts[string(doctor.Unknown)])
}

// judgePlans compares each plan with the greatest possible number of near pairs, and with the plan of this
// version of Tandem.
func (r *Report) judgePlans(n *machine.Node, now []pairPlan) partResult {
	j := newJudgement("placement")
	var counts []string
	for _, p := range now {
		judgePlan(j, n, p)
		counts = append(counts, fmt.Sprintf("%d of %d", p.countNear(), p.Count))
	}
	if len(now) == 0 {
		j.fail("no container can have a GPU and a VF")
	}
	if !reflect.DeepEqual(r.Plans, now) {
		j.fail("this version of Tandem has other plans than version %s in the report", r.Tandem)
	}
	return j.summarise("near pairs of containers on the empty machine: %s",
		cmp.Or(strings.Join(counts, ", "), "none"))
}

// judgePlan compares the near pairs of a container with the greatest possible number.
func judgePlan(j *judgement, n *machine.Node, p pairPlan) {
	subject := cli.Count(p.Count, "pair")
	if near, possible := p.countNear(), min(p.Count, possiblePairs(n, p.Nodes)); near < possible {
		j.fail("%s: %d near, and %d are possible on its NUMA nodes", subject, near, possible)
	}
}

// judgeOffer compares the offered devices with the machine.
func (r *Report) judgeOffer(n *machine.Node) partResult {
	j := newJudgement("offer")
	if r.Offer == nil {
		j.miss("no plugin answers: run tandem qualify on a node on which Tandem runs")
		return j.summarise("unknown")
	}
	count := map[string]int{}
	offered := map[topology.Address]bool{}
	for _, d := range r.Offer.Devices {
		count[d.Kind]++
		offered[d.Address] = true
		judgeDevice(j, n, d)
	}
	for _, g := range n.GPUs {
		if !offered[g.Address] {
			driver := "no driver is bound to it"
			if g.Driver != "" {
				driver = "its driver is " + g.Driver
			}
			j.fail("GPU %s is not offered; %s", g.Address, driver)
		}
	}
	for _, kind := range []string{string(device.GPU), string(device.VF)} {
		if count[kind] == 0 {
			j.fail("no %s is offered", kind)
		}
	}
	for _, rejected := range r.Offer.Rejected {
		j.note("resource %d of config.json, selector %d: %s rejects %s", rejected.Pool, rejected.Selector,
			rejected.Key, cli.Count(rejected.Count, "device"))
	}
	return j.summarise("%s and %s in mode %s", cli.Count(count[string(device.GPU)], "GPU"),
		cli.Count(count[string(device.VF)], "VF"), r.Offer.Mode)
}

func judgeDevice(j *judgement, n *machine.Node, d offeredDevice) {
	function, ok := n.Tree.Device(d.Address)
	if !ok {
		j.fail("%s %s is offered, and the machine lacks it", d.Kind, d.Address)
		return
	}
	isGPU := slices.Contains(n.GPUs, function)
	if isGPU != (d.Kind == string(device.GPU)) || !isGPU && !mayBeVF(function) {
		j.fail("%s is offered as a %s", d.Address, d.Kind)
	}
	_, known := function.NUMA.Number()
	switch node, hinted := d.NUMA.Number(); {
	case !known:
	case !hinted && isGPU: // VFs may be without a node (excludeTopology)
		j.fail("%s %s is offered without NUMA node, and sysfs has node %s", d.Kind, d.Address, function.NUMA)
	case hinted && !isOn(n.Tree, function, node):
		j.fail("%s %s is offered on NUMA node %d, and sysfs has node %s", d.Kind, d.Address, node, function.NUMA)
	}
	if d.Health != "" {
		j.note("%s %s is %s", d.Kind, d.Address, d.Health)
	}
}

// acceleratorClass is the base class of processing accelerators, which a pool of tandem-rdma can have.
const acceleratorClass = 0x12

func mayBeVF(d *topology.Device) bool { return d.IsNIC() || d.Class>>16 == acceleratorClass }

// judgeTraffic compares the measured pairs with the machine.
func (r *Report) judgeTraffic(n *machine.Node) partResult {
	j := newJudgement("traffic")
	if len(r.Traffic) == 0 {
		j.miss("no measurement: run tandem verify --traffic -o json in a pod of this node, and add the file with " +
			"--verified")
		return j.summarise("unknown")
	}
	pairs, inHost := 0, 0
	for _, t := range r.Traffic {
		pairs += len(t.Pairs)
		inHost += judgeMeasurement(j, n, t)
	}
	if inHost > 0 {
		j.note("%s measured in host memory, which proves the NIC and not GPUDirect RDMA",
			cli.CountAre(inHost, "pair"))
	}
	return j.summarise("%s, %d of them in GPU memory", cli.Count(pairs, "pair"), pairs-inHost)
}

// judgeMeasurement judges the pairs of a container, and counts those in host memory.
func judgeMeasurement(j *judgement, n *machine.Node, t measuredTraffic) (inHost int) {
	if t.Failures > 0 {
		j.fail("tandem verify found %s", cli.Count(t.Failures, "failure"))
	}
	if len(t.Pairs) == 0 {
		j.fail("the measurement has no pair")
	}
	for _, p := range t.Places {
		judgePlace(j, n, p)
	}
	for _, p := range t.Pairs {
		if !p.Good {
			j.fail("GPU %s and VF %s: %.2f Gb/s, %d %% of the best pair, %d %% of the port's rate", p.GPU, p.VF,
				p.Gbps, p.OfBest, p.OfRate)
		}
		if !p.InGPU() {
			inHost++
		}
		isAt := func(o machine.Pair) bool { return o.GPU == p.GPU && o.VF == p.VF && o.Distance == p.Distance }
		if p.GPU != "" && !slices.ContainsFunc(t.Places, isAt) {
			judgePlace(j, n, p.Pair)
		}
	}
	return inHost
}

// judgePlace compares the distance of a pair in the container with the machine's.
func judgePlace(j *judgement, n *machine.Node, p machine.Pair) {
	gpu, vf := addressOf(n, p.GPU), addressOf(n, p.VF)
	if got := n.Tree.Distance(gpu, vf).Level; got != p.Distance {
		j.fail("GPU %s and VF %s are %s apart in the container, and %s by the recording", p.GPU, p.VF, p.Distance,
			got)
	}
}
