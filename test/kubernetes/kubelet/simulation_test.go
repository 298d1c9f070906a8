package kubelet_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	simulation "github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
	"github.com/tandem-k8s/tandem/topology/recording"
)

var simulated = flag.Int("simulated", 24000, "admissions that the simulator's kubelet is compared on, in all")

// The simulator's kubelet and the real managers decide alike. Containers of all sizes come and go on the real
// ones; before each admission the simulator has exactly their state. Admitted or refused, the NUMA nodes,
// which plugins are asked what, and what the container holds have to be the same.
func TestSimulatorDecidesAsTheKubelet(t *testing.T) {
	worlds := simulatedWorlds(t)
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("on", func(t *testing.T) {
		for _, w := range worlds {
			t.Run(w.String(), func(t *testing.T) {
				t.Parallel() // the kubelet waits for the disk most of the time
				d := startDuel(t, w)
				for i := range *simulated / len(worlds) {
					d.step(fmt.Sprint("pod-", i))
					if t.Failed() {
						t.Fatalf("seed %d, admission %d", *seed, i)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for what, count := range d.seen {
					seen[what] += count
				}
			})
		}
	})
	t.Log(summary(seen))
	for _, what := range []string{
		"refused", "admitted", "asked", "asked to complete", "not asked", "answer filled up",
	} {
		if seen[what] == 0 && *simulated >= 1000 {
			t.Errorf("never %s: that is not compared", what)
		}
	}
}

// simulatedWorld is a node under the settings that matter to an admission.
type simulatedWorld struct {
	name  string
	node  *simulation.Node
	nodes int      // NUMA nodes
	on    [2][]int // those with devices of a kind; each has as many as any other, in the order of the addresses
	rules simulation.Rules
}

func (w simulatedWorld) String() string {
	return fmt.Sprintf("%s, %v, VFs without NUMA %t", w.name, w.rules.Policy, w.rules.ExcludeTopology)
}

func simulatedWorlds(t *testing.T) []simulatedWorld {
	t.Helper()
	var worlds []simulatedWorld
	add := func(name string, nodes int, on [2][]int, n *simulation.Node, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []hints.Policy{hints.Restricted, hints.BestEffort, hints.None} {
			for _, exclude := range []bool{false, true} {
				rules := simulation.Rules{Policy: policy, ExcludeTopology: exclude}
				worlds = append(worlds,
					simulatedWorld{fmt.Sprintf("%s, %d VFs", name, n.Count(simulation.VF)), n, nodes, on, rules})
			}
		}
	}
	for _, name := range simulation.Presets() {
		for _, vfs := range []int{1, 2, 8} {
			n, err := simulation.NewPreset(name, vfs)
			add(name, 2, [2][]int{{0, 1}, {0, 1}}, n, err)
		}
	}
	for _, nics := range [][]int{{0, 1, 2, 3}, {1, 2}} {
		n, err := quarters(nics)
		add(fmt.Sprintf("four NUMA nodes, NICs on %v", nics), 4, [2][]int{{0, 1, 2, 3}, nics}, n, err)
	}
	return worlds
}

// quarters is a machine with four NUMA nodes, each with two GPUs, and some with a NIC with three VFs.
func quarters(nics []int) (*simulation.Node, error) {
	const nodes = 4
	b := recording.NewBuilder()
	add := func(domain, device, function, numa int) placement.Device {
		a := topology.Address{Domain: uint32(domain), Bus: 1, Device: uint8(device), Function: uint8(function)}
		dir := fmt.Sprintf("devices/pci%04x:01/%s", domain, a)
		b.Link("bus/pci/devices/"+a.String(), "../../../"+dir)
		b.File(dir+"/numa_node", fmt.Sprintln(numa))
		return placement.Device{ID: a.String(), Address: a}
	}
	var gpus, vfs []placement.Device
	for n := range nodes {
		gpus = append(gpus, add(n, 1, 0, n), add(n, 2, 0, n))
		if slices.Contains(nics, n) {
			vfs = append(vfs, add(n, 3, 1, n), add(n, 3, 2, n), add(n, 3, 3, n))
		}
	}
	b.File("devices/system/node/online", fmt.Sprintf("0-%d\n", nodes-1))
	machine, err := b.Machine()
	if err != nil {
		return nil, err
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		return nil, err
	}
	return simulation.New("quarters", tree, gpus, vfs, nil)
}

// duel is a real node and the simulator's, with the same containers on them.
type duel struct {
	simulatedWorld
	t         *testing.T
	random    *rand.Rand
	kubelet   *node.Node
	state     *simulation.State
	sides     [2]*side
	allocated *calls // to the real plugins, in order
	guests    []guest
	full      float64 // share of the devices that may be taken when the next container comes
	seen      map[string]int
}

// side is a kind of device and its plugin.
type side struct {
	kind     simulation.Kind
	resource string
	numbers  map[string]int // of the devices, by ID
	taken    int
	asked    *asked // the question of this admission, nil for none
}

// asked is a question to a plugin and its answer, with the devices as numbers.
type asked struct {
	Kind            simulation.Kind
	Available, Must []int
	Size            int
	answer          []int
}

// guest is a container that both nodes have admitted.
type guest struct {
	pod       *v1.Pod
	container simulation.Container
}

func startDuel(t *testing.T, w simulatedWorld) *duel {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		t.Fatal(err)
	}
	d := &duel{
		simulatedWorld: w, t: t, random: rand.New(rand.NewPCG(*seed, 1)),
		state: simulation.NewState(w.node, w.rules), allocated: &calls{}, seen: map[string]int{},
	}
	d.kubelet, err = node.Start(dir, node.Options{NUMA: farApart(w.nodes), Policy: string(w.rules.Policy)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.kubelet.Stop(); err != nil {
			t.Error(err)
		}
	})
	for kind, resource := range []string{fakeGPU, fakeVF} {
		d.sides[kind] = d.startSide(dir, simulation.Kind(kind), resource)
	}
	return d
}

// farApart are NUMA nodes of which no two are closer than others.
func farApart(count int) []node.NUMA {
	var nodes []node.NUMA
	for i := range count {
		distances := slices.Repeat([]uint64{32}, count)
		distances[i] = 10
		nodes = append(nodes, node.NUMA{ID: i, Distances: distances})
	}
	return nodes
}

// startSide registers a plugin for the devices of a kind with the real node.
func (d *duel) startSide(dir string, kind simulation.Kind, resource string) *side {
	d.t.Helper()
	s := &side{kind: kind, resource: resource, numbers: map[string]int{}}
	plugin := &fakePlugin{resource: resource, calls: d.allocated}
	count, on := d.node.Count(kind), d.on[kind]
	for i := range count {
		device := &v1beta1.Device{ID: d.node.Devices[kind][i].ID, Health: v1beta1.Healthy}
		if kind == simulation.GPU || !d.rules.ExcludeTopology {
			device.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(on[len(on)*i/count])}}}
		}
		s.numbers[device.ID] = i
		plugin.devices = append(plugin.devices, device)
	}
	plugin.prefer = func(available, must []string, size int) []string {
		return d.prefer(s, available, must, size)
	}
	plugin.run(d.t, dir)
	if err := d.kubelet.WaitAllocatable(deadline(d.t), resource, count); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// prefer answers the real kubelet: at random, a plugin may prefer what it likes. Sometimes it says too
// little, and the kubelet has to fill up.
func (d *duel) prefer(s *side, available, must []string, size int) []string {
	if s.asked != nil {
		d.t.Errorf("%v asked twice", s.kind)
	}
	rest := slices.DeleteFunc(slices.Sorted(slices.Values(available)), func(id string) bool {
		return slices.Contains(must, id)
	})
	d.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	answer := slices.Concat(must, rest[:max(0, size-len(must))])
	if d.random.IntN(8) == 0 {
		answer = answer[:d.random.IntN(len(answer)+1)]
	}
	s.asked = &asked{s.kind, s.indices(available), s.indices(must), size, s.indices(answer)}
	return answer
}

// indices are the numbers of devices, ascending.
func (s *side) indices(ids []string) []int {
	var indices []int
	for _, id := range ids {
		indices = append(indices, s.numbers[id])
	}
	slices.Sort(indices)
	return indices
}

// step lets containers leave and one come. How full the node is by then changes every few admissions.
func (d *duel) step(name string) {
	const phase = 10
	if d.random.IntN(phase) == 0 {
		d.full = math.Sqrt(d.random.Float64()) // full rather than empty: there is more to decide
	}
	for len(d.guests) > 0 && d.fullness() > d.full {
		d.depart(d.random.IntN(len(d.guests)))
	}
	d.admit(name, d.request())
}

// fullness is the share of the devices that are taken, by the scarcer kind.
func (d *duel) fullness() float64 {
	full := 0.0
	for _, s := range d.sides {
		full = max(full, float64(s.taken)/float64(d.node.Count(s.kind)))
	}
	return full
}

func (d *duel) depart(i int) {
	g := d.guests[i]
	if err := d.kubelet.Remove(g.pod); err != nil {
		d.t.Fatal(err)
	}
	d.state.Release(g.container)
	for kind, devices := range g.container.Devices {
		d.sides[kind].taken -= len(devices)
	}
	d.guests = slices.Delete(d.guests, i, i+1)
}

// request is a random one that fits by numbers, as the scheduler sees to. Half of them are pairs.
func (d *duel) request() simulation.Request {
	for {
		if len(d.guests) > 0 && d.fullness() == 1 {
			d.depart(0)
		}
		gpus, vfs := d.count(simulation.GPU), d.count(simulation.VF)
		if d.random.IntN(2) == 0 {
			vfs = gpus
		}
		fits := gpus <= d.free(simulation.GPU) && vfs <= d.free(simulation.VF)
		if fits && gpus+vfs > 0 {
			return simulation.Request{GPUs: gpus, VFs: vfs}
		}
	}
}

// count is none, a small number as often as not, or any that is free.
func (d *duel) count(kind simulation.Kind) int {
	most := d.free(kind)
	switch d.random.IntN(6) {
	case 0:
		return 0
	case 1, 2:
		return d.random.IntN(most + 1)
	default:
		return d.random.IntN(min(most, 4) + 1)
	}
}

func (d *duel) free(kind simulation.Kind) int { return d.node.Count(kind) - d.sides[kind].taken }

// admit asks both for a container and compares all they did.
func (d *duel) admit(name string, r simulation.Request) {
	pod := guestPod(name, r)
	d.allocated.take()
	for _, s := range d.sides {
		s.asked = nil
	}
	mask, admitted := d.state.Affinity(r)
	err := d.kubelet.Admit(pod)
	if !d.sameVerdict(r, admitted, err) {
		return
	}
	if err != nil {
		d.seen["refused"]++
		if err := d.kubelet.Remove(pod); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	d.seen["admitted"]++
	if got, want := mask.Numbers(), d.kubelet.Affinity(pod, "app"); !slices.Equal(got, want) {
		d.t.Errorf("%v: NUMA nodes %v, the kubelet's %v", r, got, want)
	}
	simulated := d.simulate(r)
	given := simulation.Container{Request: r}
	for kind, s := range d.sides {
		given.Devices[kind] = s.indices(d.kubelet.Devices(pod, "app")[s.resource])
		s.taken += len(given.Devices[kind])
		d.sameDevices(s, r, simulated.Devices[kind], given.Devices[kind])
	}
	d.state.Release(simulated)
	d.state.Take(given)
	d.guests = append(d.guests, guest{pod, given})
}

// guestPod names only resources that it wants some of, as pods do.
func guestPod(name string, r simulation.Request) *v1.Pod {
	devices := map[string]int{}
	if r.GPUs > 0 {
		devices[fakeGPU] = r.GPUs
	}
	if r.VFs > 0 {
		devices[fakeVF] = r.VFs
	}
	return node.Pod(name, nil, []v1.Container{node.Container("app", devices)})
}

func (d *duel) sameVerdict(r simulation.Request, admitted bool, err error) bool {
	d.t.Helper()
	var rejection *node.Rejection
	refused := errors.As(err, &rejection) && rejection.Reason == "TopologyAffinityError"
	if err != nil && !refused || refused == admitted {
		d.t.Errorf("%v: admitted %t, the kubelet says %v", r, admitted, err)
		return false
	}
	return true
}

// simulate admits the container on the simulated node, in the order in which the real one went through its
// resources, and with the same preferences of the plugins. It compares the questions.
func (d *duel) simulate(r simulation.Request) simulation.Container {
	d.t.Helper()
	first := simulation.GPU
	if order := d.allocated.take(); len(order) > 0 && order[0] == fakeVF {
		first = simulation.VF
	}
	var questions [2]*asked
	c, outcome := d.state.Admit(r, first, func(_ *simulation.State, q simulation.Question, _ *rand.Rand) []int {
		questions[q.Kind] = &asked{
			Kind: q.Kind, Available: q.Available, Must: slices.Sorted(slices.Values(q.Must)), Size: q.Size,
		}
		if question := d.sides[q.Kind].asked; question != nil {
			questions[q.Kind].answer = question.answer
			return question.answer
		}
		return nil
	}, d.random)
	if outcome != simulation.Admitted {
		d.t.Errorf("%v: outcome %v of what has just been admitted", r, outcome)
	}
	for kind, s := range d.sides {
		if diff := cmp.Diff(s.asked, questions[kind], cmp.AllowUnexported(asked{})); diff != "" {
			d.t.Errorf("%v: question to the plugin (-kubelet +simulator):\n%s", r, diff)
		}
	}
	return c
}

// sameDevices compares what the container holds of a kind; where the kubelet has filled up at random, what
// the plugin has said must be among it.
func (d *duel) sameDevices(s *side, r simulation.Request, simulated, given []int) {
	d.t.Helper()
	switch {
	case len(given) == 0 && len(simulated) == 0:
		return
	case s.asked == nil:
		d.seen["not asked"]++
	case len(s.asked.Must) > 0:
		d.seen["asked to complete"]++
	default:
		d.seen["asked"]++
	}
	if s.asked == nil || len(s.asked.answer) == s.asked.Size {
		if !slices.Equal(simulated, given) {
			d.t.Errorf("%v: %vs %v, the kubelet's %v", r, s.kind, simulated, given)
		}
		return
	}
	d.seen["answer filled up"]++
	held := slices.Concat(s.asked.Must, s.asked.answer)
	for _, devices := range [][]int{simulated, given} {
		missing := slices.DeleteFunc(slices.Clone(held), func(i int) bool { return slices.Contains(devices, i) })
		if len(devices) != s.asked.Size || len(missing) > 0 {
			d.t.Errorf("%v: %vs %v, want %d of them with %v", r, s.kind, devices, s.asked.Size, held)
		}
	}
}

func summary(seen map[string]int) string {
	var parts []string
	for what, count := range seen {
		parts = append(parts, fmt.Sprint(count, " ", what))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
