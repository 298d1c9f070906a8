// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
	"github.com/tandem-k8s/tandem/topology/recording"
)

func ready(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// good returns the evidence of a machine without a fault: each device is offered, NCCL agrees, and one pair
// was measured in the GPU's memory.
func good(t *testing.T, name string) evidence {
	t.Helper()
	m, err := machines.Load(name, 2)
	ready(t, err)
	e := evidence{Tandem: "1.2.3", Machine: withACS(t, m)}
	n, err := machine.ReadFS(m.FS(), &machine.Source{})
	ready(t, err)
	all, _, err := n.VFPools("")
	ready(t, err)
	gpus, vfs := n.GPUDevices(), machine.Devices(all)
	resources := []coordinator.Resource{
		{Name: "amd.com/gpu", Kind: "gpu"}, {Name: "tandem.dev/rdma_vf", Kind: "vf"},
	}
	for i, devices := range [][]model.Device{gpus, vfs} {
		for _, d := range devices {
			offered := coordinator.Device{ID: d.ID, Address: d.Address.String(), NUMA: d.NUMA}
			resources[i].Devices = append(resources[i].Devices, offered)
		}
	}
	e.Status = &coordinator.Status{Mode: "device-plugin", Resources: resources}
	e.NCCL = dumped(t, n)
	pair := machine.Pair{GPU: gpus[0].ID, VF: nearest(n.Tree, gpus[0].Address, vfs[0].ID, n)}
	pair.Distance = n.Tree.Distance(gpus[0].Address, addressOf(n, pair.VF)).Level
	e.Verified = []*verify.Verification{{
		Pairs: []machine.Pair{pair},
		Traffic: &verify.TrafficReport{Seconds: 5, Pairs: []verify.TrafficPair{{
			Facts: verify.Facts{Pair: pair}, Speed: verify.Speed{Memory: "dmabuf", Gbps: 190, OfBest: 100, OfRate: 95},
			Verdict: "ok",
		}}},
	}}
	return e
}

// withACS adds the file config to each bridge, as root records it.
func withACS(t *testing.T, m *recording.Machine) *recording.Machine {
	t.Helper()
	tree, err := topology.Read(m.FS())
	ready(t, err)
	b := m.Build()
	for d := range tree.Devices() {
		if d.Class>>8 == topology.PortClass>>8 && d.ACS == topology.ACSUnknown {
			at := strings.Builder{}
			at.WriteString("devices/" + d.RootComplex())
			for _, bridge := range append(d.Bridges(), d.Address) {
				at.WriteString("/" + bridge.String())
			}
			b.File(at.String()+"/config", "none\n")
		}
	}
	full, err := b.Machine()
	ready(t, err)
	return full
}

// dumped returns the machine's GPUs and PFs as NCCL dumps them.
func dumped(t *testing.T, n *machine.Node) *nccl.File {
	t.Helper()
	var functions []topology.Address
	for _, d := range slices.Concat(n.GPUs, n.RDMANICs()) {
		functions = append(functions, d.Address)
	}
	var text bytes.Buffer
	ready(t, nccl.Write(&text, n.Tree, functions))
	return file(t, text.String())
}

func file(t *testing.T, text string) *nccl.File {
	t.Helper()
	f, err := nccl.Read("topo.xml", strings.NewReader(text))
	ready(t, err)
	return f
}

// nearest returns the ID of the VF nearest to a GPU.
func nearest(tree *topology.Tree, gpu topology.Address, best string, n *machine.Node) string {
	for d := range tree.Devices() {
		if d.IsVF() && tree.Distance(gpu, d.Address).Compare(tree.Distance(gpu, addressOf(n, best))) < 0 {
			best = d.Address.String()
		}
	}
	return best
}

func report(t *testing.T, e evidence) *Report {
	t.Helper()
	r, err := newReport(e)
	ready(t, err)
	return r
}

// TestEveryMachinePasses: on every recorded machine the placement has the greatest possible number of near
// pairs, and a report without a fault passes in all parts. One machine was recorded without NICs.
func TestEveryMachinePasses(t *testing.T) {
	t.Parallel()
	for _, name := range machines.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "amd-mi300x-cpx-kfd" {
				if r := report(t, evidence{Machine: mustLoad(t, name)}); r.Results[0].Verdict != failed {
					t.Errorf("%s", r.Table())
				}
				return
			}
			r := report(t, good(t, name))
			if r.Worst() != passed {
				t.Errorf("%s", r.Table())
			}
		})
	}
}

// TestFaults: each fault of the evidence changes the verdict on its part alone, and what is no fault changes
// none.
func TestFaults(t *testing.T) {
	t.Parallel()
	const oci, mi250, dma = "oci-mi300x-derived", "amd-mi250-16gcd-8nic", "nv-gb300-aks-dma-derived"
	const ociGPU, ociNIC, dmaNIC = `<pci busid="0000:11:00.0"/>`, `<pci busid="0000:0c:00.0"/>`, "0101:00:00.0"
	// the switches of switches of mi250, and NICs below the lower and the upper one
	const below = `<pci busid="0000:01:00.0"><pci busid="0000:09:00.0"><pci busid="0000:0c:00.0">` +
		`<pci busid="0000:0e:00.0"/></pci>%s</pci>%s</pci>`
	const near, far = `<pci busid="0000:0b:00.0"/>`, `<pci busid="0000:1a:00.0"/>`
	for _, test := range []struct {
		name, machine string
		fault         func(t *testing.T, e *evidence)
		part          string
		want          Verdict
		told          string // in the summary or a detail
	}{
		{"recorded without root", oci, func(t *testing.T, e *evidence) {
			m, err := machines.Load(oci, 2)
			ready(t, err)
			e.Machine = m
		}, "machine", incomplete, "ACS"},

		{"an error of doctor", oci, finds("topology-policy", doctor.Error), "findings", failed, "topology-policy"},
		{"doctor without root", oci, finds("no-right", doctor.Unknown), "findings", incomplete, "no-right"},
		{"a warning of doctor", oci, finds("device-health", doctor.Warning), "findings", passed,
			"device-health (warning)"},
		{"a severity of another version", oci, finds("any", "fatal"), "findings", incomplete, "any (fatal)"},

		{"no plugin", oci, func(_ *testing.T, e *evidence) { e.Status = nil }, "offer", incomplete, "no plugin"},
		{"a GPU is not offered", oci, func(_ *testing.T, e *evidence) {
			e.Status.Resources[0].Devices = e.Status.Resources[0].Devices[1:]
		}, "offer", failed, "its driver is amdgpu"},
		{"no VF is offered", oci, func(_ *testing.T, e *evidence) {
			e.Status.Resources[1].Devices = nil
		}, "offer", failed, "no vf"},
		{"an unknown device is offered", oci, offers(func(_, vf *coordinator.Device) {
			vf.Address = "0000:fe:00.0"
		}), "offer", failed, "0000:fe:00.0"},
		{"a GPU is offered as a VF", oci, offers(func(gpu, vf *coordinator.Device) {
			vf.Address, vf.NUMA = gpu.Address, gpu.NUMA
		}), "offer", failed, "offered as a vf"},
		{"a bridge is offered as a VF", oci, offers(func(_, vf *coordinator.Device) {
			vf.Address, vf.NUMA = "0000:0b:00.0", topology.NUMANode{}
		}), "offer", failed, "0000:0b:00.0 is offered as a vf"},
		{"a GPU without NUMA node", oci, offers(func(gpu, _ *coordinator.Device) {
			gpu.NUMA = topology.NUMANode{}
		}), "offer", failed, "without NUMA node, and sysfs has node 0"},
		{"another NUMA node", oci, offers(func(gpu, _ *coordinator.Device) {
			gpu.NUMA = topology.Node(1)
		}), "offer", failed, "NUMA node 1"},
		{"a NIC on the node of its DMA function", dma, apart(dmaNIC, 0), "offer", passed, ""},
		{"a NIC on its own node", dma, apart(dmaNIC, 1), "offer", passed, ""},
		{"a NIC on a third node", dma, apart(dmaNIC, 2), "offer", failed, dmaNIC},

		{"no topology of NCCL", oci, func(_ *testing.T, e *evidence) { e.NCCL = nil }, "nccl", incomplete,
			"NCCL_TOPO_DUMP_FILE"},
		{"NCCL sees a switch more", oci,
			sees(0, `<pci busid="0000:01:00.0">`+ociGPU+`<pci busid="0000:2a:00.0"/></pci>`),
			"nccl", failed, "by NCCL, and not by sysfs"},
		{"NCCL sees no switch", oci, sees(0, ociGPU+ociNIC), "nccl", failed, "by sysfs, and not by NCCL"},
		{"NCCL sees a function of no bus", oci, sees(0, ociGPU+`<pci busid="0000:0c:1f.7"/>`), "nccl", failed,
			"the machine lacks it"},
		{"NCCL sees another NUMA node", oci, sees(1, ociGPU+`<pci busid="0000:2a:00.0"/>`), "nccl", failed,
			"node 1 by NCCL"},
		{"NCCL's file is of another machine", oci, sees(0, `<pci busid="00fe:11:00.0"/>`), "nccl", failed,
			"the machine lacks it"},
		{"NCCL sees GPUs alone", oci, sees(0, ociGPU), "nccl", incomplete, "no pair of a GPU and a NIC"},
		{"NCCL sees NICs alone", oci, sees(0, ociNIC), "nccl", incomplete, "no pair of a GPU and a NIC"},
		{"NCCL sees a NIC with a DMA function at the NIC's own place", dma,
			sees(0, `<pci busid="0008:01:00.0"><pci busid="0008:06:00.0"/></pci><pci busid="`+dmaNIC+`"/>`),
			"nccl", passed, ""},
		{"NCCL sees the switches of a switch", mi250,
			sees(1, fmt.Sprintf(below, near, `<pci busid="0000:12:00.0">`+far+`</pci>`)), "nccl", passed, ""},
		{"NCCL leaves out the switch of a single card", mi250, sees(1, fmt.Sprintf(below, near, far)),
			"nccl", passed, ""},
		{"NCCL sees a far NIC near", mi250, sees(1, fmt.Sprintf(below, near+far, "")), "nccl", failed,
			"GPU 0000:0e:00.0 and NIC 0000:1a:00.0 have the common bridges " +
				"[0000:01:00.0 0000:09:00.0] by NCCL, and [0000:01:00.0] by sysfs"},
		{"NCCL sees a near NIC far", mi250, sees(1, fmt.Sprintf(below, "", near)), "nccl", failed,
			"[0000:01:00.0] by NCCL, and [0000:01:00.0 0000:09:00.0] by sysfs"},

		{"no traffic", oci, func(_ *testing.T, e *evidence) { e.Verified = nil }, "traffic", incomplete,
			"--verified"},
		{"a slow pair", oci, measures(func(_ *verify.Verification, traffic *verify.TrafficReport) {
			traffic.Pairs[0].Verdict = "slow"
		}), "traffic", failed, "190.00 Gb/s"},
		{"a failure of the places", oci, measures(func(v *verify.Verification, _ *verify.TrafficReport) {
			v.Failures = []string{"any"}
		}), "traffic", failed, "1 failure"},
		{"another distance in the container", oci, measures(func(v *verify.Verification, _ *verify.TrafficReport) {
			v.Pairs[0].Distance = topology.SYS
		}), "traffic", failed, "SYS apart in the container"},
		{"another distance of the measured pair", oci,
			measures(func(_ *verify.Verification, traffic *verify.TrafficReport) {
				traffic.Pairs[0].Distance = topology.NODE
			}), "traffic", failed, "NODE apart in the container"},
		{"a container without a measured pair", oci, func(_ *testing.T, e *evidence) {
			none := *e.Verified[0]
			none.Traffic = &verify.TrafficReport{Seconds: 5}
			e.Verified = append(e.Verified, &none)
		}, "traffic", failed, "no pair"},
		{"no pair is measured", oci, measures(func(_ *verify.Verification, traffic *verify.TrafficReport) {
			traffic.Pairs = nil
		}), "traffic", failed, "no pair"},
		{"the traffic of a VF without a GPU", oci,
			measures(func(_ *verify.Verification, traffic *verify.TrafficReport) {
				alone := traffic.Pairs[0]
				alone.GPU, alone.Distance, alone.Memory = "", topology.UNK, "host"
				traffic.Pairs = append(traffic.Pairs, alone)
			}), "traffic", passed, "2 pairs, 1 of them in GPU memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := good(t, test.machine)
			test.fault(t, &e)
			r := report(t, e)
			for _, result := range r.Results {
				want := passed
				if result.Part == test.part {
					want = test.want
					if text := result.Summary + strings.Join(result.Details, "\n"); !strings.Contains(text, test.told) {
						t.Errorf("%s: %q lacks %q", result.Part, text, test.told)
					}
				}
				if result.Verdict != want {
					t.Errorf("%s is %s, want %s: %q", result.Part, result.Verdict, want, result.Details)
				}
			}
			if r.Worst() != test.want {
				t.Errorf("all is %s", r.Worst())
			}
		})
	}
}

// finds adds a finding of doctor.
func finds(id string, severity doctor.Severity) func(*testing.T, *evidence) {
	return func(_ *testing.T, e *evidence) { e.Findings = []doctor.Finding{{ID: id, Severity: severity}} }
}

// offers changes the first GPU and the first VF that plugins offer.
func offers(change func(gpu, vf *coordinator.Device)) func(*testing.T, *evidence) {
	return func(_ *testing.T, e *evidence) {
		change(&e.Status.Resources[0].Devices[0], &e.Status.Resources[1].Devices[0])
	}
}

// apart puts a NIC on NUMA node 1, its DMA function stays on node 0, and offers it on a node.
func apart(nic string, node int) func(*testing.T, *evidence) {
	return func(t *testing.T, e *evidence) {
		target, err := fs.ReadLink(e.Machine.FS(), topology.PCIDevices+"/"+nic)
		ready(t, err)
		b := e.Machine.Build()
		b.Replace(path.Join(topology.PCIDevices, target, "numa_node"), "1\n")
		if e.Machine, err = b.Machine(); err != nil {
			t.Fatal(err)
		}
		e.Status.Resources[1].Devices = []coordinator.Device{{Address: nic, NUMA: topology.Node(node)}}
	}
}

// sees replaces the topology that NCCL sees.
func sees(numa int, functions string) func(*testing.T, *evidence) {
	return func(t *testing.T, e *evidence) {
		const one = `<system version="1"><cpu numaid="%d">%s</cpu></system>`
		e.NCCL = file(t, fmt.Sprintf(one, numa, functions))
	}
}

// measures changes the verification of the container.
func measures(change func(*verify.Verification, *verify.TrafficReport)) func(*testing.T, *evidence) {
	return func(_ *testing.T, e *evidence) { change(e.Verified[0], e.Verified[0].Traffic) }
}

// TestMergedFunctions: NCCL merges the VFs of a card to an address that no function needs to have.
func TestMergedFunctions(t *testing.T) {
	t.Parallel()
	const name = "oci-mi300x-derived"
	m, err := machines.Load(name, 2)
	ready(t, err)
	for _, functions := range [][2]string{
		{"0000:0c:12.3", "0000:0c:10.0"}, {"0000:0c:12.3", "0000:0c:12.0"}, {"0000:fd:11.3", "0000:fd:00.0"},
	} {
		vf, at := functions[0], functions[1]
		b := m.Build()
		dir := "devices/pci0000:07/0000:07:00.0/0000:08:00.0/0000:09:00.0/0000:0a:00.0/0000:0b:00.0"
		b.File(dir+"/"+vf+"/class", "0x020000\n")
		b.Link("bus/pci/devices/"+vf, "../../../"+dir+"/"+vf)
		e := good(t, name)
		if e.Machine, err = b.Machine(); err != nil {
			t.Fatal(err)
		}
		e.NCCL = file(t, `<system version="2"><cpu numaid="0"><pci busid="0000:11:00.0"/><pci busid="`+at+`"/>
			</cpu></system>`)
		if r := report(t, e); strings.Contains(strings.Join(r.Results[4].Details, "\n"), "lacks") {
			t.Errorf("%s as %s: %s", vf, at, r.Table())
		}
	}
}

// TestOtherMachines: a machine without GPUs or without NICs fails.
func TestOtherMachines(t *testing.T) {
	t.Parallel()
	sys := functions.New()
	sys.PF(0x81, "ens1", 2, nil)
	nics, err := recording.Capture(sys.FS())
	ready(t, err)
	for told, m := range map[string]*recording.Machine{
		"the machine has no GPU of AMD or NVIDIA": nics,
		"the machine has no NIC with RDMA":        mustLoad(t, "amd-mi300x-cpx-kfd"),
	} {
		r := report(t, evidence{Machine: m})
		if got := r.Results[0]; got.Verdict != failed || !slices.Contains(got.Details, told) {
			t.Errorf("%s: %s", told, r.Table())
		}
		if got := r.Results[3]; got.Verdict != failed {
			t.Errorf("placement of a machine without devices: %s", r.Table())
		}
	}
}

// TestNotes: what changes no verdict is shown.
func TestNotes(t *testing.T) {
	t.Parallel()
	e := good(t, "nv-gb300-aks-dma-derived")
	e.Machine = withoutVPD(t, e.Machine)
	e.Status.Resources[1].Devices[0].Health = device.Degraded
	e.Choices = []pools.Choice{
		{Resource: "a", Selector: 1}, {Resource: "a", Selector: 2},
		{Resource: "b", Selector: 2, Reasons: []pools.Reason{{Key: "pfNames", Count: 3}}},
	}
	measured := e.Verified[0].Traffic.Pairs[0]
	e.Verified[0].Traffic.Pairs = nil
	for _, s := range []verify.Speed{{Memory: "host"}, {Memory: "gpu"}, {Memory: "dmabuf"}, {Memory: "other"}} {
		measured.Speed = s
		e.Verified[0].Traffic.Pairs = append(e.Verified[0].Traffic.Pairs, measured)
	}
	r := report(t, e)
	slices.Reverse(e.Status.Resources)
	if diff := cmp.Diff(written(t, r), written(t, report(t, e))); diff != "" {
		t.Errorf("in another order of the plugins (-want +got):\n%s", diff)
	}
	slices.Reverse(e.Status.Resources)
	text := r.Table().String()
	for _, want := range []string{
		"offer: vf " + e.Status.Resources[1].Devices[0].Address + " is degraded\n",
		"offer: resource 2 of config.json, selector 2: pfNames rejects 3 devices\n",
		"4 pairs, 2 of them in GPU memory\n", "traffic: 2 pairs are measured in host memory",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	for _, note := range noted(t, r) {
		if !slices.Contains(r.Results[0].Details, note) {
			t.Errorf("the part machine lacks %q: %q", note, r.Results[0].Details)
		}
	}
}

// withoutVPD leaves out the files vpd, as a recording without root does.
func withoutVPD(t *testing.T, m *recording.Machine) *recording.Machine {
	t.Helper()
	var text bytes.Buffer
	if _, err := m.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	left := regexp.MustCompile(`(?m)^vpd = .*\n`).ReplaceAllString(text.String(), "")
	count := m.Len() - strings.Count(text.String(), "\nvpd = ")
	left = left[:strings.LastIndex(left, "end ")] + fmt.Sprintf("end %d entries\n", count)
	without, err := recording.Parse(strings.NewReader(left))
	ready(t, err)
	return without
}

// noted returns the notes on the machine of a report, at least one.
func noted(t *testing.T, r *Report) []string {
	t.Helper()
	n, err := r.readMachine()
	if err != nil || len(n.Notes) == 0 {
		t.Fatalf("%v, %v", n, err)
	}
	return n.Notes
}

// TestManyDetails: the table counts the details after the first ones of a part.
func TestManyDetails(t *testing.T) {
	t.Parallel()
	e := good(t, "oci-mi300x-derived")
	for i := range most + 2 {
		e.Findings = append(e.Findings, doctor.Finding{ID: fmt.Sprint("finding-", i), Severity: doctor.Warning})
	}
	text := report(t, e).Table().String()
	if got := strings.Count(text, "findings: finding-"); got != most ||
		!strings.Contains(text, "findings: and 2 more\n") {
		t.Errorf("%d details of %d:\n%s", got, most+2, text)
	}
}

// TestJudgePlan: a plan with fewer near pairs than its NUMA nodes have fails.
func TestJudgePlan(t *testing.T) {
	t.Parallel()
	n, err := machine.ReadFS(mustLoad(t, "nv-h100-oci").FS(), &machine.Source{})
	ready(t, err)
	pairs := func(near, far int) []machine.Pair {
		return append(slices.Repeat([]machine.Pair{{Distance: topology.PIX}}, near),
			slices.Repeat([]machine.Pair{{Distance: topology.NODE}}, far)...)
	}
	for _, test := range []struct {
		plan pairPlan
		want Verdict
		told string
	}{
		{pairPlan{Count: 4, Nodes: []int{0}, Pairs: pairs(4, 0)}, passed, ""},
		{pairPlan{Count: 4, Nodes: []int{0}, Pairs: pairs(3, 1)}, failed, "4 pairs: 3 near, and 4 are possible"},
		{pairPlan{Count: 8, Nodes: []int{0}, Pairs: pairs(4, 4)}, passed, ""}, // node 0 has four GPUs
		{pairPlan{Count: 8, Nodes: []int{0, 1}, Pairs: pairs(4, 4)}, failed, "8 pairs: 4 near, and 8 are possible"},
		{pairPlan{Count: 8, Pairs: pairs(7, 1)}, failed, "8 pairs: 7 near, and 8 are possible"},
	} {
		j := newJudgement("placement")
		judgePlan(j, n, test.plan)
		if j.Verdict != test.want || !strings.Contains(strings.Join(j.Details, "\n"), test.told) {
			t.Errorf("%v: %s %q, want %s %q", test.plan, j.Verdict, j.Details, test.want, test.told)
		}
	}
}

// TestOtherPlans: a report whose plans this version would not make fails.
func TestOtherPlans(t *testing.T) {
	t.Parallel()
	r := report(t, good(t, "nv-h100-oci"))
	r.Plans[0].Pairs[0].VF = r.Plans[1].Pairs[1].VF
	if err := r.Judge(); err != nil || r.Worst() != failed {
		t.Errorf("%v, %s", err, r.Table())
	}
}

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	r := report(t, good(t, "nv-gb200-derived"))
	again, err := Read(strings.NewReader(written(t, r)))
	ready(t, err)
	ready(t, again.Judge())
	if diff := cmp.Diff(written(t, r), written(t, again)); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	for _, wrong := range []string{"", "{}", `{"version": 2, "machine": ["x"]}`, `{"version": 1, "machine": "x"}`, "[]"} {
		if r, err := Read(strings.NewReader(wrong)); err == nil {
			t.Errorf("reads %q as %v", wrong, r)
		}
	}
}

// TestMatching compares the matching with an exhaustive search, for all relations of three GPUs and four VFs.
func TestMatching(t *testing.T) {
	t.Parallel()
	const gpus, vfs = 3, 4
	for relation := range 1 << (gpus * vfs) {
		near := func(gpu, vf int) bool { return relation>>(gpu*vfs+vf)&1 == 1 }
		var most func(gpu int, used uint) int
		most = func(gpu int, used uint) int {
			if gpu == gpus {
				return 0
			}
			best := most(gpu+1, used)
			for vf := range vfs {
				if used>>vf&1 == 0 && near(gpu, vf) {
					best = max(best, 1+most(gpu+1, used|1<<vf))
				}
			}
			return best
		}
		if got, want := matchMost(gpus, vfs, near), most(0, 0); got != want {
			t.Fatalf("relation %012b: %d, want %d", relation, got, want)
		}
	}
}

// TestForeignReport: the lists of a report are bounded, and its texts cannot imitate a verdict.
func TestForeignReport(t *testing.T) {
	t.Parallel()
	for told, change := range map[string]func(r *Report){
		"nccl: 1025 GPUs": func(r *Report) { r.NCCL.GPUs = slices.Repeat(r.NCCL.GPUs[:1], mostPlaces+1) },
		"1025 NICs":       func(r *Report) { r.NCCL.NICs = slices.Repeat(r.NCCL.NICs[:1], mostPlaces+1) },
		"traffic: 10001 pairs": func(r *Report) {
			r.Traffic[0].Places = slices.Repeat(r.Traffic[0].Places[:1], mostPairs)
			r.Traffic = append(r.Traffic, measuredTraffic{Pairs: r.Traffic[0].Pairs[:1]})
		},
	} {
		r := report(t, good(t, "nv-h100-oci"))
		change(r)
		if err := r.Judge(); err == nil || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v", told, err)
		}
	}
	r := report(t, good(t, "nv-h100-oci"))
	r.Findings = []foundID{{ID: "x\nnccl: passed\x1b[2J", Severity: "error"}}
	r.Offer.Mode = "x\ntraffic  passed"
	ready(t, r.Judge())
	for line := range strings.Lines(r.Table().String()) {
		forged := strings.HasPrefix(line, "nccl:") || strings.HasPrefix(line, "traffic  passed")
		if forged || strings.Contains(line, "\x1b") {
			t.Errorf("a text of the report is the line %q", line)
		}
	}
}

func mustLoad(t *testing.T, name string) *recording.Machine {
	t.Helper()
	m, err := machines.Load(name, 0)
	ready(t, err)
	return m
}

// TestForeignVerification: a verification with a device that the machine lacks is an error, so that no text
// of it gets into the report.
func TestForeignVerification(t *testing.T) {
	t.Parallel()
	for _, foreign := range []func(v *verify.Verification){
		func(v *verify.Verification) { v.Pairs[0].GPU = "secret" },
		func(v *verify.Verification) { v.Pairs[0].VF = "0000:fe:00.0" },
		func(v *verify.Verification) { v.Traffic.Pairs[0].VF = "secret" },
		func(v *verify.Verification) { v.Traffic.Pairs[0].GPU = "0000:fe:00.0" },
		func(v *verify.Verification) { v.Traffic = nil },
	} {
		e := good(t, "nv-h100-oci")
		foreign(e.Verified[0])
		if r, err := newReport(e); err == nil || strings.Contains(fmt.Sprint(err), "report") {
			t.Errorf("%v, %v", r, err)
		}
	}
}

func written(t *testing.T, r *Report) string {
	t.Helper()
	var text bytes.Buffer
	if _, err := r.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
