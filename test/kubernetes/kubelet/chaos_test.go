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

	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
)

var (
	chaosAdmissions = flag.Int("chaos", 300, "admissions of the fault campaign")
	onlyFault       = flag.String("fault", "", "the only faults of the campaign, by name, with semicolons")
)

// The fault campaign: pods of all kinds come and go while daemons, kubelet and run folder suffer every fault
// of faults_test.go, between admissions and in the middle of one. Whatever happens,
//
//   - no pod is refused but by the kubelet's own decision, because a daemon that it needs is dead, or because
//     the kubelet gives out a device that another pod has,
//   - a pod that asks for alignment is refused where it cannot have it, and only there; no other pod is
//     refused for that,
//   - no device has two owners,
//   - a daemon that nobody kills does not end,
//   - pairs are the best possible again within one admission of the end of the fault, where the daemons know
//     who holds what,
//   - the kubelet loses no device by a flap, and a failed one within seconds; nothing else is said to be
//     degraded or failed, although counters move,
//   - no start finds a ledger that it cannot read, or forgets a device that a pod has,
//   - at rest no plan stands, and the ledger is what the kubelet knows.
//
// A fault counts where it has really happened: the campaign fails if one that was begun never did.
//
// The same seed does the same to the node, as far as the kubelet's own order and the machine's speed allow.
// There is a campaign with every source of intent; one of ten admissions is with daemons that the plugin
// watcher finds: it looks once a second, and faults take as long.
func TestChaos(t *testing.T) {
	faults := newDeck(t)
	watched := *chaosAdmissions / 10
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			c := startChaos(t, w, faults)
			if w.Watcher {
				c.run(watched)
				return
			}
			c.run((*chaosAdmissions - watched) / (len(worlds) - 1))
		})
	}
	faults.check(t)
}

func (c *chaos) run(admissions int) {
	start := time.Now()
	for c.admissions < admissions {
		c.depart()
		switch {
		case c.random.IntN(8) == 0:
			if f, ok := c.faults.deal(c); ok {
				c.suffer(f)
			}
		case c.random.IntN(200) == 0:
			c.rest()
		default:
			c.quiet()
		}
		c.failIfBroken()
	}
	c.rest()
	c.checkJudged()
	c.checkSource()
	c.checkHistory()
	c.failIfBroken()
	c.t.Logf("kubelet %s, seed %d, %v: %v", node.Version, *seed, time.Since(start).Round(time.Second), c)
}

// chaos is a load under faults.
type chaos struct {
	*load
	world      world
	history    *history.Recorder
	faults     *deck
	fault      string      // that is suffered
	happens    func() bool // whether it has come, where that is not noted at once; else nil
	admissions int
	began      int // where in the daemons' log the admission of the newest pod begins
	counts     map[string]int
	trace      []string // what was done, newest last
	fullest    float64  // of the node, before others have to leave

	// the newest admission during which a pod ended: what that had was free to nobody when it was asked for
	freed     int
	corrupted bool // files in the run folder are, until the next admission

	ill     map[topology.Address]*ailment
	found   states                      // health by the daemons' newest report
	change  history.ID                  // of the health, if one can be on its way
	owner   map[string]topology.Address // the function of each device
	moved   map[noisy]*moved            // counters, below their limits
	slowest map[string]time.Duration    // until a state was seen
	storms  bool                        // daemons and kubelet can be away by what is suffered

	stopped bool                  // the kubelet is
	killed  map[*pair.Daemon]bool // and not started again
	started map[*pair.Daemon]int  // since the last recovery: where their log begins
	dead    bool                  // a daemon or the kubelet is dead, or was in this admission
	// called with every call of the kubelet to a plugin, before (false) and after it
	hook func(node.Call, bool)
}

func startChaos(t *testing.T, w world, faults *deck) *chaos {
	t.Helper()
	setup := w.Setup
	setup.Machine, setup.ExcludeTopology = "oci-mi300x-derived", true
	setup.Coordinated, setup.Pulse, setup.Counters, setup.RunDir = true, true, true, smallFolder(t)
	r := startRig(t, setup)
	c := &chaos{
		world:  w,
		faults: faults,
		load:   &load{t: t, Rig: r, random: rand.New(rand.NewPCG(*seed, 2))},
		counts: map[string]int{},
		killed: map[*pair.Daemon]bool{}, started: map[*pair.Daemon]int{},
		hook: func(node.Call, bool) {},
		ill:  map[topology.Address]*ailment{}, owner: map[string]topology.Address{},
		moved: map[noisy]*moved{}, slowest: map[string]time.Duration{},
	}
	for _, f := range c.Functions() {
		for _, id := range f.Devices {
			c.owner[id] = f.Address
		}
	}
	c.blind = setup.Intent != "" && !strings.Contains(setup.Intent, "podresources")
	c.history = history.New(mostEvents, history.Steps())
	r.Record(c.history)
	r.Node.Intercept(func(call node.Call) { c.hook(call, false); r.Before(call) },
		func(call node.Call) { r.After(call); c.hook(call, true) })
	return c
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

// quiet admits a pod while all is well. It has to get the best pairs.
func (c *chaos) quiet() { c.judge(c.next(nil)) }

func (c *chaos) judge(pod *v1.Pod) {
	placements, err := c.Rig.Admit(deadline(c.t), pod)
	if c.admitted(pod, err) && c.settle(false) {
		for _, p := range placements {
			c.check(pod, p)
			c.countAligned(pod, p)
		}
	}
}

// suffer lets a fault come, pods arrive, and the fault go.
func (c *chaos) suffer(f fault) {
	c.fault, c.storms = f.name, !f.calm
	c.did("fault: %s", f.name)
	c.storm(f)
	end := f.begin(c)
	for i := range most {
		if i > c.random.IntN(3) && c.hasHappened() {
			break
		}
		c.makeRoom()
		pod := c.next(nil)
		err := c.AdmitBlind(pod)
		c.excuse()
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
	c.fault, c.corrupted = "", false
}

// most is how many pods wait for a fault that happens in the middle of an admission.
const most = 20

// hasHappened reports whether the fault that is suffered has come by now.
func (c *chaos) hasHappened() bool {
	if c.happens != nil {
		return c.happens()
	}
	return c.faults.happened[c.fault]
}

// happened notes that the fault which is suffered has really come.
func (c *chaos) happened() {
	c.counts["fault: "+c.fault]++
	c.faults.happened[c.fault] = true
}

// recover starts what is dead and admits two pairs when all are there again. The second one has to be the
// best.
func (c *chaos) recover() {
	for _, daemon := range []*pair.Daemon{c.Pair.GPU, c.Pair.RDMA} {
		if !daemon.Running() && !c.killed[daemon] {
			c.must(fmt.Errorf("ended although nobody killed it: %w", daemon.Err()))
		}
		if c.killed[daemon] {
			c.start(daemon)
		}
	}
	c.waitRegistered()
	if err := c.WaitReady(deadline(c.t)); err != nil {
		c.t.Errorf("after the fault: %v", err)
		return
	}
	c.dead, c.storms = false, false
	c.settle(true)
	c.did("recovered")
	c.checkReadable()
	c.makeRoom()
	for attempt := range 2 {
		if attempt > 0 {
			c.calm()
		}
		pod := c.next(&shape{app: []want{{1, 1}}})
		placements, err := c.Rig.Admit(deadline(c.t), pod)
		if !c.admitted(pod, err) || !c.settle(false) {
			continue
		}
		switch p := placements[0]; {
		case attempt > 0:
			c.check(pod, p)
		case p.Pairs != p.Best:
			c.counts["not the best right after a fault"]++
		}
	}
	c.checkKept()
}

// waitRegistered waits until the kubelet knows the daemons that were started: for a moment it goes on
// counting the devices of one that was killed.
func (c *chaos) waitRegistered() {
	for daemon, position := range c.started {
		_, err := c.Pair.Log.Wait(deadline(c.t), position, func(lines []pair.Line) bool {
			return slices.ContainsFunc(lines, func(line pair.Line) bool {
				return line.Daemon == daemon.Name() && line.Message == "registered"
			})
		})
		c.must(err)
	}
	clear(c.started)
}

// makeRoom lets pods leave until two pairs are free.
func (c *chaos) makeRoom() {
	for len(c.pods) > 0 && min(c.Free(c.GPU), c.Free(rig.VF)) < 2 {
		c.load.depart(c.random.IntN(len(c.pods)))
	}
}

// rest checks what holds when nothing happens.
func (c *chaos) rest() {
	c.did("rest")
	c.counts["rest"]++
	c.checkLedger()
	c.waitNoPlan()
}

// waitNoPlan waits until no plan stands. The socket announces that to nobody, so this asks every few
// milliseconds.
func (c *chaos) waitNoPlan() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	const planTime = 2 * time.Second // planTTL in coordination/admission/answer.go
	late := time.After(planTime + time.Second)
	for {
		status, err := c.Status(deadline(c.t))
		c.must(err)
		if status.GetPlan() == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			c.t.Errorf("the plan %v stands although nothing has happened for longer than it may", status.GetPlan())
			return
		}
	}
}

// next makes a pod of a random kind, or of this one. In every other case it has one of 16 names, where no pod
// has it.
func (c *chaos) next(s *shape) *v1.Pod {
	if c.noise(); !c.storms {
		c.settle(false)
	}
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
	return c.requireSome(c.randomPod(name))
}

// admitted reports whether a pod was admitted, and judges why not.
func (c *chaos) admitted(pod *v1.Pod, err error) bool {
	c.t.Helper()
	c.excuse()
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
	case c.isMisaligned(pod, rejection.Message):
	case c.isTaken(rejection):
		c.counts["refused: the kubelet gave a device out twice"]++
	case c.isFailing() && strings.Contains(rejection.Message, "devices unavailable"):
		c.counts["refused: a device has just failed"]++
		c.Excuse(nil, history.Refused)
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
	lines, _ := c.Pair.Log.Since(0)
	counts := maps.Clone(c.counts)
	for _, line := range lines {
		switch {
		case line.Message == "preferred" && line.Source == "local":
			counts["answer: local"]++
		case line.Message == "preferred":
			counts["answer: coordinated"]++
		case strings.Contains(line.Text, "no answer in time"):
			counts["answer: too late, the plugin answered for the coordinator"]++
		case line.Message == "preferred allocation repaired":
			counts["answer: repaired"]++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text,
		"%d admissions; %d containers with pairs judged, of them %d late and %d with VFs in another order",
		c.admissions, c.count.paired, c.count.late, c.count.guessed)
	for _, state := range slices.Sorted(maps.Keys(c.slowest)) {
		fmt.Fprintf(&text, "\n%6v  until a device was known to be %s, at most",
			c.slowest[state].Round(100*time.Millisecond), state)
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "\n%6d  %s", counts[what], what)
	}
	return text.String()
}
