// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
)

// fault is what can happen to a node. begin lets it come, at once or when the kubelet next calls a plugin,
// and returns its end.
type fault struct {
	name  string
	begin func(*chaos) (end func())
}

var faults = []fault{
	{"daemon killed", atOnce(func(c *chaos) { c.kill(c.oneDaemon()) })},
	{"both daemons killed", atOnce(func(c *chaos) { c.kill(c.Pair.GPU, c.Pair.RDMA) })},
	{"daemon killed in an admission", inAdmission(func(c *chaos) { c.kill(c.oneDaemon()) })},
	{"both daemons killed in an admission", inAdmission(func(c *chaos) { c.kill(c.Pair.GPU, c.Pair.RDMA) })},
	{"daemon paused", func(c *chaos) func() { c.happened(); return c.pause() }},
	{"daemon paused in an admission", pausedInAdmission},
	{"kubelet restarted", atOnce((*chaos).restartKubelet)},
	{"kubelet killed in an admission", kubeletKilledInAdmission},
	{"daemon replaced", func(c *chaos) func() { return c.replace(false) }},
	{"daemon replaced with surge", func(c *chaos) func() { return c.replace(true) }},
	{"look at PodResources while an Allocate is in flight", lookInFlight},
}

func atOnce(do func(*chaos)) func(*chaos) (end func()) {
	return func(c *chaos) func() {
		do(c)
		c.happened()
		return func() {}
	}
}

// inAdmission does something before or after one of the next calls of the kubelet to a plugin.
func inAdmission(do func(*chaos)) func(*chaos) (end func()) {
	return func(c *chaos) func() {
		wait := c.random.IntN(8) // up to four calls in the admission of one container
		c.hook = func(call node.Call, after bool) {
			if wait--; wait == -1 {
				c.did("%s on %s, answered %t", call.Method, call.Socket, after)
				do(c)
				c.happened()
			}
		}
		return func() {}
	}
}

func (c *chaos) oneDaemon() *pair.Daemon {
	return []*pair.Daemon{c.Pair.GPU, c.Pair.RDMA}[c.random.IntN(2)]
}

func (c *chaos) kill(daemons ...*pair.Daemon) {
	c.dead = true
	for _, daemon := range daemons {
		c.did("kill %s", daemon.Name())
		c.must(daemon.Kill())
		c.killed[daemon] = true
	}
}

// pause stops a daemon for less than the kubelet's patience, which has no end.
func (c *chaos) pause() (end func()) {
	const most = 400 * time.Millisecond
	daemon := c.oneDaemon()
	c.did("pause %s", daemon.Name())
	c.must(daemon.Pause())
	done := make(chan error, 1)
	time.AfterFunc(time.Duration(c.random.Int64N(int64(most))), func() { done <- daemon.Resume() })
	return func() { c.must(<-done) }
}

func pausedInAdmission(c *chaos) func() {
	end := func() {}
	inAdmission(func(c *chaos) { end = c.pause() })(c)
	return func() { end() }
}

// restartKubelet starts the kubelet again. The pods of before have to pass its admission once more.
func (c *chaos) restartKubelet() {
	c.dead = true
	c.did("restart kubelet")
	refused, err := c.Node.Restart()
	c.must(err)
	c.stopped = false
	for _, pod := range refused {
		c.counts["refused by the restarted kubelet: an init container had devices"]++
		c.load.depart(slices.Index(c.pods, pod))
	}
}

func kubeletKilledInAdmission(c *chaos) func() {
	inAdmission(func(c *chaos) {
		c.stopped = true
		c.did("stop kubelet")
		c.must(c.Node.Stop())
	})(c)
	return c.restartKubelet
}

// replace is a rolling update of one daemon, while pods arrive. With surge the new one comes first. A kubelet
// before 1.37 then disconnects the new one with the old one, and the new one registers again.
func (c *chaos) replace(surge bool) (end func()) {
	c.dead = true // no pod can have its devices for a moment
	which := []**pair.Daemon{&c.Pair.GPU, &c.Pair.RDMA}[c.random.IntN(2)]
	before, after := *which, (*which).Another()
	c.happened() // the end waits for it
	position := c.Pair.Log.Len()
	done := make(chan error, 1)
	go func() {
		steps := []func() error{before.Stop, after.Start}
		if surge {
			known := func() error { return registered(deadline(c.t), c.Pair.Log, position, 1) }
			steps = []func() error{after.Start, known, before.Stop}
		}
		for _, step := range steps {
			if err := step(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() {
		c.must(<-done)
		*which = after
		if surge && node.Version == "1.36" {
			c.must(registered(deadline(c.t), c.Pair.Log, position, 2))
		}
	}
}

// lookInFlight makes the kubelet lose sight of a device: see doubled_test.go. It finds it again when the next
// pod ends.
func lookInFlight(c *chaos) func() {
	lister := podResourcesClient(c.t, c.KubeletDir())
	var gone []*v1.Pod
	c.hook = func(call node.Call, after bool) {
		if after || call.Method != node.Allocate || len(c.pods) == 0 || c.random.IntN(2) == 0 {
			return
		}
		ended := c.random.IntN(len(c.pods))
		c.did("look in flight, %s has ended", c.pods[ended].Name)
		c.Node.Terminate(c.pods[ended])
		if _, err := lister.List(deadline(c.t), &podresources.ListPodResourcesRequest{}); err != nil {
			c.did("%v", err) // the limiter
		}
		c.happened()
		gone = append(gone, c.pods[ended])
		c.Release(c.pods[ended])
		c.pods = slices.Delete(c.pods, ended, ended+1)
	}
	return func() {
		for _, pod := range gone {
			c.must(c.Remove(pod))
		}
		if len(c.pods) > 0 {
			c.load.depart(c.random.IntN(len(c.pods)))
		}
	}
}

// deck deals the faults of all campaigns: each once before any comes again.
type deck struct {
	faults   []fault
	dealt    map[string]int
	happened map[string]bool
}

func newDeck(t *testing.T) *deck {
	t.Helper()
	d := &deck{faults: slices.Clone(faults), dealt: map[string]int{}, happened: map[string]bool{}}
	if *onlyFault != "" {
		only := strings.Split(*onlyFault, ";")
		d.faults = slices.DeleteFunc(d.faults, func(f fault) bool { return !slices.Contains(only, f.name) })
	}
	if len(d.faults) == 0 {
		t.Fatalf("there is no fault %q", *onlyFault)
	}
	return d
}

// deal returns one of the faults that have come least often.
func (d *deck) deal(c *chaos) fault {
	c.random.Shuffle(len(d.faults), func(i, j int) { d.faults[i], d.faults[j] = d.faults[j], d.faults[i] })
	next := slices.MinFunc(d.faults, func(a, b fault) int { return d.dealt[a.name] - d.dealt[b.name] })
	d.dealt[next.name]++
	return next
}

// check makes sure that each fault has happened: in a short campaign, each that was dealt.
func (d *deck) check(t *testing.T) {
	t.Helper()
	for _, f := range d.faults {
		if !d.happened[f.name] && (d.dealt[f.name] > 0 || *chaosAdmissions >= 300) {
			t.Errorf("%q was begun %d times and never happened", f.name, d.dealt[f.name])
		}
	}
}
