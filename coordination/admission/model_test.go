// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// judge plays both plugins towards a coordinator, and judges it by what the model of the kubelet knows.
type judge struct {
	*admission
	kubelet *model.Kubelet
	source  intent.Source
	random  *rand.Rand
	trouble trouble

	found map[string]int    // what was wrong, by kind
	told  map[string]string // the first of each kind, and what came before
	blind bool              // the coordinator could not know everything of the newest pod
}

// trouble is how often something is not as it should be, from 0 to 1.
type trouble struct {
	model.Trouble
	away    float64 // PodResources does not list pods for a question
	miss    float64 // the coordinator does not hear of an Allocate
	restart float64 // the kubelet starts anew
}

// newJudge makes a kubelet with a machine's devices, and a coordinator that asks it.
func newJudge(t *testing.T, seed uint64, source intent.Source, trouble trouble) *judge {
	t.Helper()
	machine := []string{"oci-mi300x-derived", "amd-mi250-16gcd-8nic"}[seed/2%2]
	none := seed%5 == 1
	j := &judge{
		admission: newAdmission(t, machine, 1+int(seed%2), seed%3 == 0, seed), source: source,
		random: rand.New(rand.NewPCG(seed, 11)), trouble: trouble, found: map[string]int{},
		told: map[string]string{},
	}
	dir := t.TempDir()
	var err error
	j.kubelet, err = model.New(dir, map[string][]device.Device{model.GPUs: j.all[gpus], model.VFs: j.all[vfs]},
		seed)
	if err != nil {
		t.Fatal(err)
	}
	j.kubelet.None, j.kubelet.Trouble = none, trouble.Trouble
	j.kubelet.Now = func() time.Time { return j.now }
	away := errors.New("away")
	c := j.coordinator
	c.Look = func(context.Context) (kubelet.View, error) {
		if j.random.Float64() < j.trouble.away {
			j.blind = true
			return kubelet.View{}, away
		}
		return j.kubelet.List(), nil
	}
	c.Get = func(_ context.Context, pod kubelet.Pod) (kubelet.View, error) { return j.kubelet.Get(pod), nil }
	c.Pods = func(context.Context) (intent.Answer, bool) {
		pods, told := j.kubelet.Tell()
		return intent.Answer{Source: source, Pods: pods}, told && source != ""
	}
	c.Policy = func() hints.Policy {
		if none {
			return hints.None
		}
		return hints.Restricted
	}
	reader := kubelet.NewCheckpointReader(dir)
	c.Recorded = reader.Read
	return j
}

// wrong notes that something is.
func (j *judge) wrong(kind, format string, args ...any) {
	if j.found[kind]++; j.found[kind] == 1 {
		trace := j.kubelet.Trace[max(0, len(j.kubelet.Trace)-20):]
		j.told[kind] = fmt.Sprintf(format, args...) + "\n\t" + strings.Join(trace, "\n\t")
	}
}

// Prefer asks the coordinator.
func (j *judge) Prefer(p *model.Pod, c *model.Container, q model.Question) []string {
	ids, why, err := j.coordinator.prefer(j.t.Context(), asking.Question(q))
	if err != nil {
		j.wrong(noAnswer, "%v", err)
		return q.Available[:q.Size]
	}
	j.kubelet.Trace = append(j.kubelet.Trace, fmt.Sprintf("%s/%s asks for %d %s: %v %s", p.Name, c.Name, q.Size,
		q.Resource, ids, why))
	j.checkFree(p, c)
	return ids
}

// checkFree compares what the newest decision took for free with what is.
func (j *judge) checkFree(asker *model.Pod, c *model.Container) {
	all := j.coordinator.history.All()
	decision := all[len(all)-1]
	for name, spare := range map[string][]placement.Device{
		gpus: decision.Request.Spare.GPUs, vfs: decision.Request.Spare.VFs,
	} {
		free := map[string]bool{}
		for _, d := range spare {
			free[d.ID] = true
		}
		holders, booked := j.kubelet.Holders(name), j.kubelet.Booked(name)
		for _, d := range j.all[name] {
			switch holder := holders[d.ID]; {
			case !booked[d.ID] && !free[d.ID]:
				j.wrong(stuck, "%s %s, when %s/%s asked: %+v", name, d.ID, asker.Name, c.Name,
					j.coordinator.current().found.Of(name, d.ID))
			case holder != nil && free[d.ID]:
				kind := lost
				if j.kubelet.OfInit(holder, name, d.ID) {
					kind = lostInit
				}
				j.wrong(kind, "%s %s of %s, when %s/%s asked", name, d.ID, holder.Name, asker.Name, c.Name)
			}
		}
	}
}

// Allocate tells the coordinator what the kubelet takes.
func (j *judge) Allocate(p *model.Pod, c *model.Container, name string, ids []string) bool {
	j.now = j.now.Add(asking.FollowWindow / 4)
	if j.random.Float64() < j.trouble.miss {
		j.kubelet.Trace = append(j.kubelet.Trace, "the coordinator does not hear of "+name)
		j.blind = true
		return true
	}
	taken, err := j.coordinator.Allocated(j.t.Context(), name, ids)
	j.now = j.now.Add(asking.FollowWindow / 4)
	switch {
	case err != nil:
		j.wrong(noAnswer, "%v", err)
	case taken.Refusal != "":
		if p.Alignment != intent.Required || !j.isApart(p, c, name, ids) {
			j.wrong(refused, "%s/%s: %s", p.Name, c.Name, taken.Refusal)
		}
		return false
	case !device.SameSet(taken.Order, ids):
		j.wrong("other devices", "%v instead of %v", taken.Order, ids)
	}
	if to := taken.Container; to != nil && (to.Pod != p.Pod || j.source != "" && to.Name != c.Name) {
		j.wrong(another, "%s/%s is said to be %v", p.Name, c.Name, to)
	}
	return true
}

// isApart reports whether a container that is given devices cannot have all its pairs on one switch each.
func (j *judge) isApart(p *model.Pod, c *model.Container, name string, ids []string) bool {
	request := map[string]placement.Half{}
	for resource, count := range c.Requests {
		half := placement.Half{Count: count}
		has := c.Devices[resource]
		if resource == name {
			has = ids
		}
		for _, d := range j.all[resource] {
			switch {
			case slices.Contains(has, d.ID):
				half.Held = append(half.Held, d.Placed())
			case len(has) == 0 && slices.Contains(c.Choice[resource], d.ID):
				half.Free = append(half.Free, d.Placed())
			}
		}
		half.Count = min(half.Count, len(half.Held)+len(half.Free))
		request[resource] = half
	}
	var r placement.Request
	for resource, half := range request {
		kindOf(resource).AddTo(&r, half)
	}
	choice := j.choose(r)
	return p.Inherits(c) || placement.Together(choice.Pairs) < len(choice.Pairs)
}

// checkPairs judges what the containers of a pod have that was admitted.
func (j *judge) checkPairs(p *model.Pod) {
	for _, c := range p.Containers {
		if c.Requests[gpus] == 0 || c.Requests[vfs] == 0 || c.Role == intent.Init {
			continue
		}
		got := j.levels(kubelet.Devices{gpus: c.Devices[gpus], vfs: c.Devices[vfs]})
		if p.Alignment == intent.Required && j.source != "" && j.kubelet.Ready() && sum(got[2:]) > 0 {
			j.wrong(notEnforced, "%s/%s %v has %v", p.Name, c.Name, c.Devices, got)
		}
		if c.Reused || len(c.Asked) < 2 || j.source == "" && c.Requests[gpus] != c.Requests[vfs] {
			continue
		}
		var r placement.Request
		for resource, choice := range c.Choice {
			half := placement.Half{Count: c.Requests[resource]}
			for _, d := range j.all[resource] {
				if slices.Contains(choice, d.ID) {
					half.Free = append(half.Free, d.Placed())
				}
			}
			half.Count = min(half.Count, len(half.Free)) // others can have ended since
			kindOf(resource).AddTo(&r, half)
		}
		if best := levelsOf(j.choose(r)); got != best {
			j.wrong(notBest, "%s/%s %v has %v, best %v", p.Name, c.Name, c.Requests, got, best)
		}
	}
}

func sum(counts []int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// run lets pods come and go.
func (j *judge) run(steps int) {
	for range steps {
		j.kubelet.Start()
		if !j.kubelet.Ready() {
			j.kubelet.Return()
		}
		pods := j.kubelet.Pods()
		switch {
		case j.random.Float64() < j.trouble.restart:
			j.kubelet.Restart()
		case len(pods) > 0 && j.random.IntN(100) < 45:
			j.kubelet.End(pods[j.random.IntN(len(pods))])
		default:
			j.now = j.now.Add(asking.FollowWindow * time.Duration(1+j.random.IntN(2000)))
			j.blind = false
			pod := j.kubelet.Random()
			if j.kubelet.Admit(pod, j) == nil && !j.blind {
				j.checkPairs(pod)
			}
		}
	}
}

// What can be wrong.
const (
	noAnswer    = "no answer"
	refused     = "refused"
	notEnforced = "not enforced"
	another     = "another container"
	notBest     = "not the best"
	lost        = "held, taken for free"
	lostInit    = "held, taken for free, of an init container"
	stuck       = "free, taken for held"
)

// troubles are what goes wrong, and what may then be wrong by what the coordinator knows: the UIDs of pods,
// as the kubelet's own lists tell them, what the API server tells, or the names that PodResources shows.
var troubles = map[string]struct {
	trouble
	uids, server, names []string
}{
	"nothing": {names: []string{stuck, lostInit}},
	"pods fail amid a container": {
		trouble: trouble{Trouble: model.Trouble{Fail: 0.1}}, names: []string{stuck, lostInit, notBest},
	},
	"lists of devices change": { // the checkpoint then has half a container, as if that were all of it
		trouble: trouble{Trouble: model.Trouble{Change: 0.1}},
		uids:    []string{another}, server: []string{another}, names: []string{stuck, lostInit, notBest},
	},
	"pods end meanwhile": { // the kubelet still has their devices as given, and offers them next time
		trouble: trouble{Trouble: model.Trouble{End: 0.1}},
		uids:    []string{stuck}, server: []string{stuck}, names: []string{stuck, lostInit, notBest},
	},
	"PodResources is away": {
		trouble: trouble{away: 0.15},
		server:  []string{stuck, lost}, names: []string{stuck, lost, lostInit, notBest, another},
	},
	// of an init container nothing tells until it has all its devices, nor of one that takes over from it: where
	// must-include is not empty PodResources is not listed
	"Allocates are missed": {
		trouble: trouble{miss: 0.05},
		uids:    []string{lost, lostInit, another}, server: []string{lost, lostInit, another},
		names: []string{stuck, lost, lostInit, another, notBest},
	},
	// and tells of its pods one by one; an init container that is given devices without a question is
	// unknown while
	// the API server has not told of its pod (seed 5)
	"the kubelet starts anew": {
		trouble: trouble{restart: 0.05},
		uids:    []string{stuck, notBest}, server: []string{stuck, notBest, lostInit},
		names: []string{stuck, lostInit, notBest, another},
	},
}

// The coordinator is right whatever pods come, whatever tells who asks.
func TestModel(t *testing.T) {
	for name, trouble := range troubles {
		seeds := uint64(20)
		switch {
		case testing.Short():
			seeds = 4
		case name == "nothing":
			seeds = 60
		}
		for source, may := range map[intent.Source][]string{
			"": trouble.names, intent.PodsAPI: trouble.uids, intent.Kubelet: trouble.uids,
			intent.APIServer: trouble.server,
		} {
			t.Run(fmt.Sprintf("%s, source %q", name, source), func(t *testing.T) {
				t.Parallel()
				total := map[string]int{}
				for seed := range seeds {
					j := newJudge(t, seed, source, trouble.trouble)
					j.run(120)
					for kind, n := range j.found {
						total[kind] += n
						if !slices.Contains(may, kind) {
							t.Errorf("seed %d, %s\n%s", seed, kind, j.told[kind])
						}
					}
				}
				t.Log(total)
			})
		}
	}
}
