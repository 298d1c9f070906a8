// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
	"github.com/tandem-k8s/tandem/test/nvml"
)

var (
	seed       = flag.Uint64("seed", 1, "seed of the mixed load; the kubelet's own order stays random")
	admissions = flag.Int("admissions", 300, "admissions of the mixed load per machine")
)

// Pods of all kinds come and go on recorded machines. Whatever else is on the node, a container that asks for
// GPUs and VFs gets the best pairs that are free at that moment on the NUMA nodes that the kubelet has
// chosen.
func TestMixedLoad(t *testing.T) {
	for _, setup := range []rig.Setup{
		{Machine: "oci-mi300x-derived", VFsPerPF: 1},
		{Machine: "oci-mi300x-derived", VFsPerPF: 4, ExcludeTopology: true},
		{Machine: "amd-mi300x-smc-thor2", VFsPerPF: 2},
		{Machine: "amd-mi250-16gcd-8nic", VFsPerPF: 2},
		{Machine: "amd-mi300x-cpx-kfd"},
		{Machine: "amd-mi300x-smc-thor2-cpx-derived", VFsPerPF: 8},
		{Machine: "nv-h100-oci", VFsPerPF: 1},
	} {
		t.Run(setup.String(), func(t *testing.T) {
			setup.Coordinated = true
			l := &load{t: t, Rig: startRig(t, setup), random: rand.New(rand.NewPCG(*seed, 0))}
			start := time.Now()
			l.run()
			t.Logf("%v in %v", l.count, time.Since(start).Round(time.Millisecond))
			l.checkJudged()
			l.checkLedger()
		})
	}
}

func startRig(t *testing.T, setup rig.Setup) *rig.Rig {
	t.Helper()
	setup.Bin = cmp.Or(setup.Bin, daemons(t))
	if machine.GPUsOf(setup.Machine) == rig.NVIDIA {
		setup.NVML = nvml.Library(t)
	}
	r, err := rig.Start(t.Context(), setup)
	must(t, err)
	t.Cleanup(func() { must(t, r.Stop()) })
	return r
}

// load is a node under a mixed load.
type load struct {
	*rig.Rig
	t      *testing.T
	random *rand.Rand
	pods   []*v1.Pod
	count  tally
}

// tally counts what happened.
type tally struct {
	admitted, refused int // pods
	paired            int // containers with GPUs and VFs
	late, guessed     int // of these, those without the best pairs: see isLate and isGuessed
}

func (c tally) String() string {
	return fmt.Sprintf("%d pods admitted, %d refused; %d containers with GPUs and VFs, "+
		"of them %d late and %d with VFs in another order", c.admitted, c.refused, c.paired, c.late, c.guessed)
}

// run admits pods; before each, others leave until the node is no fuller than wanted, which changes every few
// admissions from empty to full.
func (l *load) run() {
	const phase = 15
	fullness := 0.0
	for step := range *admissions {
		if step%phase == 0 {
			fullness = l.random.Float64()
		}
		for len(l.pods) > 0 && l.fullness() > fullness {
			l.depart(l.random.IntN(len(l.pods)))
		}
		l.admit(fmt.Sprint("pod-", step))
		if l.t.Failed() {
			l.t.Fatalf("seed %d, admission %d", *seed, step)
		}
	}
}

// fullness is the share of the node that is in use, by what is scarcest: GPUs, VFs or pods.
func (l *load) fullness() float64 {
	const maxPods = 40
	used := float64(len(l.pods)) / maxPods
	used = max(used, 1-float64(l.Free(l.GPU))/float64(l.GPUs()))
	if l.VFs() > 0 {
		used = max(used, 1-float64(l.Free(rig.VF))/float64(l.VFs()))
	}
	return used
}

func (l *load) depart(i int) {
	must(l.t, l.Remove(l.pods[i]))
	l.pods = slices.Delete(l.pods, i, i+1)
}

// admit admits a random pod. Only the topology manager may refuse it, since the node has enough devices for
// it.
func (l *load) admit(name string) {
	pod := l.randomPod(name)
	placements, err := l.Rig.Admit(deadline(l.t), pod)
	var rejection *node.Rejection
	switch {
	case errors.As(err, &rejection) && rejection.Reason == "TopologyAffinityError":
		l.count.refused++
		must(l.t, l.Remove(pod))
		return
	case err != nil:
		l.t.Fatalf("seed %d: %v", *seed, err)
	}
	l.count.admitted++
	l.pods = append(l.pods, pod)
	for _, p := range placements {
		l.check(pod, p)
	}
}

// check judges a container with GPUs and VFs.
func (l *load) check(pod *v1.Pod, p rig.Placement) {
	if !p.IsPaired() {
		return
	}
	l.count.paired++
	switch {
	case p.Pairs == p.Best:
		return
	case isGuessed(p):
		l.count.guessed++
		return
	case isLate(p):
		l.count.late++
		return
	}
	l.t.Errorf("pod %s, container %s, %v asked first, NUMA nodes %v: %v, in another order %v, "+
		"with other devices %v\n"+
		"GPUs %v\nVFs %v\n%s",
		pod.Name, p.Container, p.Asked[0], p.NUMA, p.Pairs, p.Matched, p.Best, p.GPUs, p.VFs, pair.Text(p.Log))
}

// isGuessed reports whether the container has the best devices and only their order is not that of the pairs,
// because it was given its VFs first and without a question: nobody could know its GPUs when its VFs were
// listed.
func isGuessed(p rig.Placement) bool {
	asked := slices.ContainsFunc(p.Log, func(line pair.Line) bool {
		return line.Message == "preferred" && line.Resource == rig.VF && sameDevices(line.Chosen, p.VFs)
	})
	return p.Matched == p.Best && p.Asked[0] == rig.VF && !asked
}

func sameDevices(ids []string, devices []machine.Device) bool {
	return len(ids) == len(devices) && !slices.ContainsFunc(devices, func(d machine.Device) bool {
		return !slices.Contains(ids, d.ID)
	})
}

// isLate reports whether the daemons chose without knowing everything, because an answer missed the fraction
// of a second for which they let the kubelet wait: the machine is busy with other things. What is given then
// need not be the best, and is counted.
func isLate(p rig.Placement) bool {
	return slices.ContainsFunc(p.Log, func(line pair.Line) bool {
		return slices.ContainsFunc([]string{
			"no answer in time", "the disk does not answer", "have no answer yet", "deadline exceeded",
			codes.DeadlineExceeded.String(), codes.ResourceExhausted.String(),
		}, func(sign string) bool { return strings.Contains(line.Text, sign) })
	})
}

// checkJudged makes sure that not everything was excused.
func (l *load) checkJudged() {
	if l.count.paired > 0 && l.count.late == l.count.paired {
		l.t.Errorf("all %d containers were late: nothing was judged", l.count.paired)
	}
}

// checkLedger compares what the coordinator believes with what the kubelet knows. The coordinator learns of
// departures only when it is asked the next time, so a last pod is admitted first; whose that pod's own
// devices are it need not know yet.
func (l *load) checkLedger() {
	l.t.Helper()
	for len(l.pods) > 1 {
		l.depart(0)
	}
	last := shape{app: []want{{1, min(1, l.VFs())}}}.pod("last", l.GPU)
	_, err := l.Rig.Admit(deadline(l.t), last)
	must(l.t, err)
	l.pods = append(l.pods, last)
	status, err := l.Status(deadline(l.t))
	must(l.t, err)
	for _, resource := range status.Resources {
		owners, believed := l.Owners(resource.Name), map[string]string{}
		for _, device := range resource.Devices {
			if device.Allocated {
				believed[device.Device.Id] = cmp.Or(device.Owner.GetPod(), last.Name)
			}
		}
		if diff := gocmp.Diff(owners, believed); diff != "" {
			l.t.Errorf("%s: owners by kubelet and by coordinator (-kubelet +coordinator):\n%s", resource.Name, diff)
		}
	}
}
