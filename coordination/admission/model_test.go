// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	kubeletmodel "github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/scale"
)

// judge plays both plugins towards a coordinator, and records for the model of package history.
type judge struct {
	*admission
	kubelet *model.Kubelet
	source  intent.Source
	random  *rand.Rand
	trouble trouble
	blind   bool // the coordinator could not know everything of the newest pod
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
		random: rand.New(rand.NewPCG(seed, 11)), trouble: trouble,
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
	read := sourcesOf(j.coordinator)
	read.look = func(context.Context) (kubelet.View, error) {
		if j.random.Float64() < j.trouble.away {
			j.blind = true
			return kubelet.View{}, away
		}
		return j.kubelet.List(), nil
	}
	read.get = func(_ context.Context, pod kubelet.Pod) (kubelet.View, error) { return j.kubelet.Get(pod), nil }
	read.life = func() string { return j.kubelet.Get(kubelet.Pod{}).Life }
	read.pods = func(context.Context) (intent.Answer, error) {
		pods, told := j.kubelet.Tell()
		if !told || source == "" {
			return intent.Answer{}, errors.New("no source")
		}
		return intent.Answer{Source: source, Pods: pods}, nil
	}
	read.manager = func() (kubeletmodel.TopologyManager, error) {
		if none {
			return kubeletmodel.TopologyManager{Rule: kubeletmodel.Rule{Policy: kubeletmodel.PolicyNone}}, nil
		}
		return kubeletmodel.TopologyManager{Rule: kubeletmodel.Rule{Policy: kubeletmodel.Restricted}}, nil
	}
	reader := kubelet.NewCheckpointReader(dir)
	read.recorded = reader.Read
	return j
}

// record adds facts to the question or allocation in progress.
func (j *judge) record(edit func(*history.Event)) { j.kubelet.History.Edit(j.kubelet.Open, edit) }

// Prefer asks the coordinator.
func (j *judge) Prefer(_ *model.Pod, _ *model.Container, q model.Question) []string {
	ids, why, err := j.coordinator.Prefer(j.t.Context(), questionOf(q))
	if err != nil {
		j.record(func(e *history.Event) { e.Alone, e.Text = true, err.Error() })
		return q.Available[:q.Size]
	}
	free := j.takenForFree()
	j.record(func(e *history.Event) {
		if e.Text, e.Free = why, free; j.blind {
			e.Exempt = promises{history.NotBest, history.NotEnforced}
		}
	})
	return ids
}

// takenForFree returns the devices that the newest decision took for free.
func (j *judge) takenForFree() map[string][]string {
	s := j.coordinator.current()
	free := map[string][]string{}
	for name, kind := range map[string]device.Kind{gpus: device.GPU, vfs: device.VF} {
		spare, _ := s.books().spareAndTaken(kind, s.open.Container)
		for _, d := range spare {
			free[name] = append(free[name], d.ID)
		}
	}
	return free
}

// Allocate reports devices that the kubelet takes to the coordinator.
func (j *judge) Allocate(_ *model.Pod, _ *model.Container, name string, ids []string) bool {
	j.now = j.now.Add(FollowWindow / 4)
	if j.random.Float64() < j.trouble.miss {
		j.record(func(e *history.Event) {
			e.Alone, e.Exempt = true, promises{history.NoAnswer, history.NotBest, history.NotEnforced}
		})
		return true
	}
	taken, err := j.coordinator.Allocated(j.t.Context(), name, ids)
	_ = j.coordinator.Returned(j.t.Context(), name, ids, taken.GetRefusal() != "")
	j.now = j.now.Add(FollowWindow / 4)
	j.record(func(e *history.Event) {
		if err != nil {
			e.Alone, e.Text = true, err.Error()
			return
		}
		e.Refusal, e.Order = taken.GetRefusal(), taken.GetDevices()
		if to := taken.GetContainer(); to != nil {
			e.Named = &history.Name{Pod: to.GetNamespace() + "/" + to.GetPod(), Container: to.GetContainer()}
		}
	})
	return err != nil || taken.GetRefusal() == ""
}

// check judges the history by the promises, except some.
func (j *judge) check(exempt []history.Promise) error {
	machine := history.Machine{
		Tree: j.coordinator.current().tree, Devices: map[string][]device.Device{gpus: j.all[gpus], vfs: j.all[vfs]},
		Kinds: map[string]device.Kind{gpus: device.GPU, vfs: device.VF},
	}
	return history.Check(j.kubelet.History.History(), machine,
		history.Rules{Names: j.source == "", Exempt: exempt})
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
			j.now = j.now.Add(FollowWindow * time.Duration(1+j.random.IntN(2000)))
			j.blind = false
			_ = j.kubelet.Admit(j.kubelet.Random(), j)
		}
	}
}

// promises are promises that are not valid in a history.
type promises = []history.Promise

const (
	another  = history.Another
	notBest  = history.NotBest
	lost     = history.Forgotten
	lostInit = history.ForgottenInit
	stuck    = history.Stuck
)

// troubles are what goes wrong, and what may then be wrong by what the coordinator knows: the UIDs of pods,
// as the kubelet's own lists tell them, or the names that PodResources shows.
var troubles = map[string]struct {
	trouble
	uids, names promises
}{
	// without UIDs the devices of a container count as held after its pod is rejected for lack of other devices
	"nothing": {names: promises{stuck, lostInit, notBest}},
	"pods fail amid a container": {
		trouble: trouble{Trouble: model.Trouble{Fail: 0.1}}, names: promises{stuck, lostInit, notBest},
	},
	"lists of devices change": { // the checkpoint then has half a container, as if that were all of it
		trouble: trouble{Trouble: model.Trouble{Change: 0.1}},
		uids:    promises{another}, names: promises{stuck, lostInit, notBest},
	},
	"pods end meanwhile": { // the kubelet still has their devices as given, and offers them next time
		trouble: trouble{Trouble: model.Trouble{End: 0.1}},
		uids:    promises{stuck}, names: promises{stuck, lostInit, notBest},
	},
	"PodResources is away": {
		trouble: trouble{away: 0.15},
		names:   promises{stuck, lost, lostInit, notBest, another},
	},
	// of an init container nothing tells until it has all its devices, nor of one that takes over from it: where
	// must-include is not empty PodResources is not listed
	"Allocates are missed": {
		trouble: trouble{miss: 0.05},
		uids:    promises{lost, lostInit, another},
		names:   promises{stuck, lost, lostInit, another, notBest},
	},
	// and tells of its pods one by one
	"the kubelet starts anew": {
		trouble: trouble{restart: 0.05},
		uids:    promises{stuck, notBest},
		names:   promises{stuck, lostInit, notBest, another},
	},
}

// The coordinator is right whatever pods come, whatever tells who asks.
func TestModel(t *testing.T) {
	for name, trouble := range troubles {
		seeds, steps := 20, 120
		if name == "nothing" {
			seeds = 60
		}
		if testing.Short() {
			steps /= 2 // of four seeds: a tenth of the steps of 20 seeds
		}
		for source, may := range map[intent.Source]promises{
			"": trouble.names, intent.PodsAPI: trouble.uids, intent.Kubelet: trouble.uids,
		} {
			t.Run(fmt.Sprintf("%s, source %q", name, source), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(scale.Rounds(seeds)) {
					j := newJudge(t, seed, source, trouble.trouble)
					j.run(steps)
					if err := j.check(may); err != nil {
						t.Errorf("seed %d, %v", seed, err)
					}
				}
			})
		}
	}
}

// questionOf returns a question of the model of the kubelet as it goes to the coordinator.
func questionOf(q model.Question) *api.PreferRequest {
	return &api.PreferRequest{
		Resource: q.Resource, Available: q.Available, MustInclude: q.MustInclude, Size: uint32(q.Size),
	}
}
