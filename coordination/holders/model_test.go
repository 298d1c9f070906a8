// SPDX-License-Identifier: Apache-2.0

package holders_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/topology"
)

// trouble is what goes wrong, and how often, from 0 to 1.
type trouble struct {
	model.Trouble
	away    float64 // List does not answer
	miss    float64 // an Allocate is not heard of
	forget  float64 // what was remembered is lost, between two containers
	restart float64 // the kubelet starts anew
}

// keeper remembers the Allocates of a model of the kubelet, and compares what Find says with the truth.
type keeper struct {
	kubelet *model.Kubelet
	reader  *kubelet.CheckpointReader
	random  *rand.Rand
	source  intent.Source // "" for names only
	trouble trouble

	allocates []holders.Allocate
	asked     map[string]bool // of this container: that was not given by a takeover
	missed    bool            // an Allocate of the container in admission was
	most      int             // Allocates that were remembered at a time
	questions int
	found     map[string]int    // what was wrong
	told      map[string]string // the first of each kind, and what came before
}

func newKeeper(t *testing.T, seed uint64, source intent.Source, trouble trouble) *keeper {
	t.Helper()
	devices := map[string][]device.Device{}
	for name, each := range map[string]int{model.GPUs: 4, model.VFs: 8} {
		for i := range 2 * each {
			devices[name] = append(devices[name], device.Device{
				ID: fmt.Sprintf("%s-%d", name[:3], i), NUMA: topology.Node(i / each), Healthy: true,
			})
		}
	}
	dir := t.TempDir()
	k, err := model.New(dir, devices, seed)
	if err != nil {
		t.Fatal(err)
	}
	k.None, k.Trouble = seed%3 == 0, trouble.Trouble
	return &keeper{
		kubelet: k, reader: kubelet.NewCheckpointReader(dir), random: rand.New(rand.NewPCG(seed, 3)),
		source:  source,
		trouble: trouble, found: map[string]int{}, told: map[string]string{},
		asked: map[string]bool{},
	}
}

func (k *keeper) happens(chance float64) bool { return k.random.Float64() < chance }

// recorded is the checkpoint.
func (k *keeper) recorded() kubelet.Checkpoint {
	recorded, err := k.reader.Read()
	if err != nil {
		panic(err)
	}
	return recorded
}

// pods are those that a source tells.
func (k *keeper) pods() (unknown kubelet.Reading[holders.Pods]) {
	told, ok := k.kubelet.Tell()
	if !ok || k.source == "" {
		return unknown
	}
	pods := holders.Pods{Names: map[string]kubelet.Pod{}, All: true}
	for _, p := range told {
		pods.Names[p.UID] = p.Pod
	}
	return kubelet.Read(pods, nil)
}

// Prefer answers at random, and judges who is said to hold what.
func (k *keeper) Prefer(p *model.Pod, c *model.Container, q model.Question) []string {
	sources := holders.Sources{
		Checkpoint: kubelet.Read(k.recorded(), nil), Pods: k.pods(), Allocates: k.allocates,
		Question: &api.PreferRequest{Resource: q.Resource, Available: q.Available, MustInclude: q.MustInclude},
	}
	if len(q.MustInclude) == 0 && !k.happens(k.trouble.away) {
		sources.View = kubelet.Read(k.kubelet.List(), nil)
	}
	result := holders.Find(sources)
	found, left := result.Holders, result.Allocates
	k.allocates, k.most = left, max(k.most, len(left))
	k.questions++
	k.judge(p, c, found, sources)
	k.asked[q.Resource] = len(q.MustInclude) == 0
	ids := slices.Clone(q.MustInclude)
	for _, id := range q.Available {
		if len(ids) < q.Size && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Allocate remembers, unless it is missed.
func (k *keeper) Allocate(p *model.Pod, c *model.Container, resource string, ids []string) bool {
	if k.happens(k.trouble.miss) {
		k.missed = true
		delete(k.asked, resource)
		k.note("missed: %s/%s %s %v", p.Name, c.Name, resource, ids)
		return true
	}
	a := holders.Allocate{
		Resource: resource, IDs: ids, Anew: k.asked[resource], Recorded: k.recorded().Identity,
	}
	if k.source != "" {
		a.UID, a.Pod, a.Name = p.UID, p.Pod, c.Name
	}
	k.allocates = append(k.allocates, a)
	delete(k.asked, resource)
	return true
}

// judge compares what is said with the truth.
func (k *keeper) judge(asker *model.Pod, c *model.Container, found holders.Holders, s holders.Sources) {
	for _, resource := range []string{model.GPUs, model.VFs} {
		truth, booked := k.kubelet.Holders(resource), k.kubelet.Booked(resource)
		for _, d := range k.kubelet.Devices[resource] {
			held := len(found.Of(resource, d.ID)) > 0
			switch owner := truth[d.ID]; {
			case owner != nil && !held:
				kind := lost
				if k.missed && owner == asker && (c.Role == model.Init || !s.View.IsKnown()) {
					kind = unheard
				}
				k.wrong(kind, "%s of %s when %s/%s asks, looked %t", d.ID, owner.Name, asker.Name, c.Name,
					s.View.IsKnown())
			case owner == nil && !booked[d.ID] && held:
				k.wrong(stuck, "%s, by %+v, when %s/%s asks, looked %t", d.ID, found.Of(resource, d.ID),
					asker.Name, c.Name, s.View.IsKnown())
			case owner != nil && k.source != "" && !slices.ContainsFunc(found.Of(resource, d.ID),
				func(h holders.Holder) bool { return h.UID == owner.UID || h.Pod == owner.Pod }):
				k.wrong(another, "%s of %s, said to be held by %+v", d.ID, owner.Name, found.Of(resource, d.ID))
			}
		}
	}
}

func (k *keeper) note(format string, args ...any) {
	k.kubelet.History.Note(history.Event{Kind: history.Fault, Text: fmt.Sprintf(format, args...)})
}

func (k *keeper) wrong(kind, format string, args ...any) {
	if k.found[kind]++; k.found[kind] == 1 {
		k.told[kind] = fmt.Sprintf(format, args...) + "\n" + k.kubelet.History.History().Last(20).Story()
	}
}

func (k *keeper) run(steps int) {
	for range steps {
		k.kubelet.Start()
		if !k.kubelet.Ready() {
			k.kubelet.Return()
		}
		pods := k.kubelet.Pods()
		switch {
		case k.happens(k.trouble.restart):
			k.kubelet.Restart()
		case len(pods) > 0 && k.random.IntN(100) < 45:
			k.kubelet.End(pods[k.random.IntN(len(pods))])
		default:
			if k.happens(k.trouble.forget) {
				k.allocates = nil
			}
			k.missed = false
			clear(k.asked)
			_ = k.kubelet.Admit(k.kubelet.Random(), k)
		}
	}
}

// What can be wrong.
const (
	lost    = "held, said to be free"
	unheard = "first half of the container that asks, of which nothing tells"
	stuck   = "free, said to be held"
	another = "another's"
)

// Whatever happens, nothing that is held is said to be free, but the first half of a container of which
// neither an Allocate nor List tells. With the kubelet's own list of pods nothing is said to be held that is
// free, either.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]trouble{
		"nothing":                    {},
		"pods fail amid a container": {Trouble: model.Trouble{Fail: 0.1}},
		"lists of devices change":    {Trouble: model.Trouble{Change: 0.1}},
		"pods end meanwhile":         {Trouble: model.Trouble{End: 0.1}},
		"PodResources is away":       {away: 0.15},
		"Allocates are missed":       {miss: 0.05},
		"all is forgotten":           {forget: 0.1},
		"the kubelet starts anew":    {restart: 0.05},
		"all of it": {
			Trouble: model.Trouble{Fail: 0.1, Change: 0.1, End: 0.1},
			away:    0.15, miss: 0.05, forget: 0.1, restart: 0.05,
		},
	} {
		for _, source := range []intent.Source{"", intent.PodsAPI} {
			t.Run(fmt.Sprintf("%s, source %q", name, source), func(t *testing.T) {
				t.Parallel()
				may := []string{unheard}
				if source != intent.PodsAPI || trouble.restart > 0 {
					may = append(may, stuck)
				}
				total, questions, most := map[string]int{}, 0, 0
				for seed := range uint64(scale.Rounds(60)) {
					k := newKeeper(t, seed, source, trouble)
					k.run(120)
					questions, most = questions+k.questions, max(most, k.most)
					for kind, n := range k.found {
						total[kind] += n
						if !slices.Contains(may, kind) {
							t.Errorf("seed %d, %s\n%s", seed, kind, k.told[kind])
						}
					}
				}
				if most > 4 {
					t.Errorf("%d Allocates are remembered", most)
				}
				t.Logf("%d questions, %d Allocates remembered at most: %v", questions, most, total)
			})
		}
	}
}
