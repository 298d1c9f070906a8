// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

var (
	chaosAdmissions = flag.Int("chaos", 300, "admissions of the fault campaign")
	onlyFault       = flag.String("fault", "", "the only faults of the campaign, by name, with semicolons")
)

// The fault campaign: pods of all kinds come and go while daemons and kubelet suffer every fault of
// faults_test.go, between admissions and in the middle of one. Whatever happens,
//
//   - no pod is refused but by the kubelet's own decision, because a daemon that it needs is dead, or because
//     the kubelet gives out a device that another pod has,
//   - no device has two owners,
//   - a daemon that nobody kills does not end,
//   - pairs are the best possible again within one admission of the end of the fault,
//   - at the end the coordinator's holders are the kubelet's.
//
// Faults of files, hardware and reads, and required alignment are the simulation's (test/simulation), which
// has the same promises.
//
// A fault counts where it has really happened: the campaign fails if one that was begun never did.
//
// The same seed does the same to the node, as far as the kubelet's own order and the machine's speed allow.
// There is a campaign with each of the kubelet's sources of requests; one of ten admissions is with daemons
// that the plugin watcher finds: it looks once a second, and faults take as long.
func TestChaos(t *testing.T) {
	faults := newDeck(t)
	watched := *chaosAdmissions / 10
	for _, w := range []struct {
		name       string
		admissions int
		setup      rig.Setup
	}{
		{"PodResources alone", (*chaosAdmissions - watched) / 2, rig.Setup{}},
		{"Pods API", (*chaosAdmissions - watched) / 2, rig.Setup{PodsAPI: true}},
		{"watcher", watched, rig.Setup{PodsAPI: true, Watcher: true}},
	} {
		t.Run(w.name, func(t *testing.T) {
			c := startChaos(t, w.setup, faults)
			c.run(w.admissions)
			lines, _ := c.Pair.Log.Since(0)
			if told := slices.ContainsFunc(lines, func(line pair.Line) bool {
				return line.Message == "preferred" && line.ToldBy("pods-api")
			}); told != w.setup.PodsAPI {
				t.Errorf("the Pods API has told of a question: %t", told)
			}
		})
	}
	faults.check(t)
}

// chaos is a load under faults.
type chaos struct {
	*load
	faults     *deck
	fault      string // that is suffered
	admissions int
	began      int // where in the daemons' log the admission of the newest pod begins
	counts     map[string]int
	trace      []string // what was done, newest last
	fullest    float64  // of the node, before others have to leave

	stopped bool                  // the kubelet is
	killed  map[*pair.Daemon]bool // and not started again
	dead    bool                  // a daemon or the kubelet is dead, or was in this admission
	// called with every call of the kubelet to a plugin, before (false) and after it
	hook func(node.Call, bool)
}

func startChaos(t *testing.T, setup rig.Setup, faults *deck) *chaos {
	t.Helper()
	setup.Machine, setup.VFsPerPF, setup.ExcludeTopology = "oci-mi300x-derived", 4, true
	setup.Coordinated = true
	c := &chaos{
		faults: faults, counts: map[string]int{}, killed: map[*pair.Daemon]bool{}, hook: func(node.Call, bool) {},
		load: &load{t: t, Rig: startRig(t, setup), random: rand.New(rand.NewPCG(*seed, 2))},
	}
	c.Node.Intercept(func(call node.Call) { c.hook(call, false) }, func(call node.Call) { c.hook(call, true) })
	return c
}

func (c *chaos) run(admissions int) {
	start := time.Now()
	for c.admissions < admissions {
		c.depart()
		if c.random.IntN(8) == 0 {
			c.suffer(c.faults.deal(c))
		} else {
			pod := c.next(nil)
			placements, err := c.Rig.Admit(deadline(c.t), pod)
			if c.admitted(pod, err) {
				for _, p := range placements {
					c.check(pod, p)
				}
			}
		}
		c.failIfBroken()
	}
	c.checkJudged()
	c.checkLedger()
	c.failIfBroken()
	c.t.Logf("kubelet %s, seed %d, %v: %v", node.Version, *seed, time.Since(start).Round(time.Second), c)
}

// depart lets pods leave until the node is no fuller than wanted, which changes now and then.
func (c *chaos) depart() {
	if c.random.IntN(15) == 0 {
		c.fullest = c.random.Float64()
	}
	for len(c.pods) > 0 && c.fullness() > c.fullest {
		c.load.depart(c.random.IntN(len(c.pods)))
	}
}

// suffer lets a fault come, pods arrive, and the fault go.
func (c *chaos) suffer(f fault) {
	const most = 20 // pods that wait for a fault that happens in the middle of an admission
	c.fault = f.name
	c.did("fault: %s", f.name)
	end := f.begin(c)
	for i := range most {
		if i > c.random.IntN(3) && c.faults.happened[c.fault] {
			break
		}
		c.makeRoom()
		pod := c.next(nil)
		err := c.AdmitBlind(pod)
		if c.stopped {
			c.counts["lost with the kubelet"]++
			c.must(c.Remove(pod))
			break
		}
		c.admitted(pod, err)
	}
	end()
	c.hook = func(node.Call, bool) {}
	c.recover()
	c.fault = ""
}

// happened notes that the fault which is suffered has really come.
func (c *chaos) happened() {
	c.counts["fault: "+c.fault]++
	c.faults.happened[c.fault] = true
}

// recover starts what is dead and admits two pairs when all are there again. The second one has to be the
// best.
func (c *chaos) recover() {
	position, started := c.Pair.Log.Len(), 0
	for _, daemon := range []*pair.Daemon{c.Pair.GPU, c.Pair.RDMA} {
		if !daemon.Running() && !c.killed[daemon] {
			c.must(fmt.Errorf("ended although nobody killed it: %w", daemon.Err()))
		}
		if c.killed[daemon] {
			c.must(daemon.Start())
			started++
		}
	}
	clear(c.killed)
	// for a moment the kubelet goes on counting the devices of one that was killed
	c.must(registered(deadline(c.t), c.Pair.Log, position, started))
	c.must(c.WaitReady(deadline(c.t)))
	c.dead = false
	c.did("recovered")
	c.makeRoom()
	for attempt := range 2 {
		pod := c.next(&shape{app: []want{{1, 1}}})
		placements, err := c.Rig.Admit(deadline(c.t), pod)
		if !c.admitted(pod, err) {
			continue
		}
		switch p := placements[0]; {
		case attempt > 0:
			c.check(pod, p)
		case p.Pairs != p.Best:
			c.counts["not the best right after a fault"]++
		}
	}
}

// makeRoom lets pods leave until two pairs are free.
func (c *chaos) makeRoom() {
	for len(c.pods) > 0 && min(c.Free(c.GPU), c.Free(rig.VF)) < 2 {
		c.load.depart(c.random.IntN(len(c.pods)))
	}
}

// next makes a pod of a random kind, or of this one. In every other case it has one of 16 names, where no pod
// has it.
func (c *chaos) next(s *shape) *v1.Pod {
	name := fmt.Sprint("pod-", c.admissions)
	if again := fmt.Sprint("again-", c.admissions%16); c.random.IntN(2) == 0 &&
		!slices.ContainsFunc(c.pods, func(p *v1.Pod) bool { return p.Name == again }) {
		name = again
	}
	c.admissions++
	c.began = c.Pair.Log.Len()
	if s != nil {
		return s.pod(name, c.GPU)
	}
	return c.randomPod(name)
}

// admitted reports whether a pod was admitted, and judges why not.
func (c *chaos) admitted(pod *v1.Pod, err error) bool {
	c.t.Helper()
	var rejection *node.Rejection
	if err == nil {
		c.counts["admitted"]++
		c.did("admit %s", pod.Name)
		c.pods = append(c.pods, pod)
		return true
	}
	c.did("not admitted: %v", err)
	switch {
	case !errors.As(err, &rejection):
		c.t.Errorf("pod %s: %v", pod.Name, err)
	case rejection.Reason == "TopologyAffinityError":
		c.counts["refused: NUMA nodes"]++
	case c.isTaken(rejection):
		c.counts["refused: the kubelet gave a device out twice"]++
	case c.dead:
		c.counts["refused: a daemon or the kubelet was dead"]++
	default:
		c.t.Errorf("pod %s, which the kubelet would have admitted: %v", pod.Name, err)
	}
	c.must(c.Remove(pod))
	return false
}

var taken = regexp.MustCompile(`refuse (\S+) (\S+): `)

// isTaken reports whether a pod was refused because a device has another owner, who does have it: a pod, or
// another container of the same pod.
func (c *chaos) isTaken(rejection *node.Rejection) bool {
	words := taken.FindStringSubmatch(rejection.Message)
	if words == nil {
		return false
	}
	resource, device := words[1], words[2]
	if c.Owners(resource)[device] != "" {
		return true
	}
	lines, _ := c.Pair.Log.Since(c.began)
	return slices.ContainsFunc(lines, func(l pair.Line) bool {
		return l.Message == "allocated" && l.Resource == resource && slices.Contains(l.Devices, device)
	})
}

func (c *chaos) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Errorf("%v", err)
		c.failIfBroken()
	}
}

func (c *chaos) did(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf("%s admission %d, ", time.Now().UTC().Format("15:04:05.000000"),
		c.admissions)+fmt.Sprintf(format, args...))
}

// failIfBroken ends a campaign that has found something, with the way there.
func (c *chaos) failIfBroken() {
	c.t.Helper()
	if c.t.Failed() {
		lines, _ := c.Pair.Log.Since(max(0, c.Pair.Log.Len()-60))
		c.t.Fatalf("-seed=%d, admission %d; %v\n%s\n%s", *seed, c.admissions, c,
			strings.Join(c.trace[max(0, len(c.trace)-30):], "\n"), pair.Text(lines))
	}
}

// String is what has happened so far.
func (c *chaos) String() string {
	var text strings.Builder
	fmt.Fprintf(&text,
		"%d admissions; %d containers with pairs judged, of them %d late and %d with VFs in another order",
		c.admissions, c.count.paired, c.count.late, c.count.guessed)
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Fprintf(&text, "\n%6d  %s", c.counts[what], what)
	}
	return text.String()
}
