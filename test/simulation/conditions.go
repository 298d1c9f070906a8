// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// condition is a circumstance of a storm or calm: an event of kind "condition" whose what is its name.
type condition struct {
	seeds.Condition
	ready func(*Simulation) bool // the node is in a state for it
	meet  func(*Simulation) error
	calm  bool // comes about in a calm
	brief bool // in a calm, for the admission of the next pod, which is not judged; all others are
}

// circumstances are what conditions have made of a node.
type circumstances struct {
	cycles       int
	waiting      []condition             // dealt, each until it comes about, the oldest first
	met          bool                    // a condition has come about in the storm or calm
	undo         []func() error          // at the end of the storm, or after an excused admission
	noCheckpoint bool                    // the kubelet's checkpoint is unknown
	excused      bool                    // the next admission is not judged
	lost         map[string][]*model.Pod // devices of pods that the kubelet has no records of
	forgotten    bool                    // the coordinator's file with the lost devices was damaged
	forging      int                     // of the next pods claim to be mirrors
	alike        bool                    // the next random pod has the name of another
	vanishing    bool                    // devices vanish before the next Allocate
	clock        time.Duration           // steps of the machine's clock
}

// conditions are the circumstances of storms beside the faults of storm.go, and of calms. What lasts ends
// with the storm, or after one admission.
var conditions = []condition{
	named("the machine starts again", always, (*Simulation).bootWithFiles),
	named("the machine starts again with an empty run folder", always, (*Simulation).bootWithoutFiles),
	{
		Condition: seeds.Condition{Name: "the kubelet loses its records", Within: withSource},
		ready:     listsPods, meet: (*Simulation).loseRecords, calm: true,
	},
	named("the kubelet has just started", hasPods, (*Simulation).justStart),
	named("the kubelet's checkpoint has no keys", savesGPUs, layout(constant("{}"))),
	named("the kubelet's checkpoint is null", savesGPUs, layout(constant("null"))),
	named("the kubelet's checkpoint has entries one level deeper", savesGPUs, layout(deeper)),
	named("the kubelet's checkpoint vanishes", savesGPUs, (*Simulation).removeCheckpoint),
	named("coordinator.json has another layout", serves, leaving(deep)),
	named("coordinator.json is of a newer version", serves, leaving(newer)),
	named("a pod forges the annotation of a mirror", hasPods, (*Simulation).forge),
	named("a pod has the name of one in another namespace", hasPods, (*Simulation).nameAlike),
	crowded("a tenant's pods with many containers run", runningPods),
	crowded("a tenant's pods with many containers have been refused", refusedPods),
	brief("the folder of Multus' files cannot be written", (*Simulation).blockDevinfo),
	brief("the folder of pairs files cannot be written", (*Simulation).blockPairs),
	brief("a device is gone between question and Allocate", (*Simulation).vanishSoon),
	brief("the kubelet refuses a pod between two resources", (*Simulation).refuseNext),
	named("the VFs have another name while they are held", holdsVFs, (*Simulation).renameVFs),
	named("the clock is set forth", always, (*Simulation).setClockForth),
	named("the clock is set back", always, (*Simulation).setClockBack),
	named("the ports of the NICs fail one by one", always, (*Simulation).failPorts),
	named("device nodes come after the plugin", always, (*Simulation).delayNodes),
	named("the verbs of the VFs come after the plugin", always, (*Simulation).delayVerbs),
	named("the driver of the GPUs comes after the plugin", always, (*Simulation).delayDriver),
}

// conditionsOf returns the conditions without their effects, and what pods and options bring about.
func conditionsOf() (all []seeds.Condition) {
	for _, c := range conditions {
		all = append(all, c.Condition)
	}
	for _, name := range []string{wholeNode, tooMuch, nothing, told} {
		all = append(all, seeds.Condition{Name: name})
	}
	return append(all, optionValues()...)
}

// named returns a condition of a storm.
func named(name string, ready func(*Simulation) bool, meet func(*Simulation) error) condition {
	return condition{Condition: seeds.Condition{Name: name}, ready: ready, meet: meet}
}

// crowded returns a condition with a tenant's pods, for the seeds whose node has a source of requests.
func crowded(name string, pods func() []corev1.Pod) condition {
	return condition{
		Condition: seeds.Condition{Name: name, Within: withSource}, ready: readsPods, meet: crowding(pods),
	}
}

// brief returns a condition of one admission.
func brief(name string, meet func(*Simulation) error) condition {
	return condition{
		Condition: seeds.Condition{Name: name}, ready: (*Simulation).settled, meet: meet, calm: true, brief: true,
	}
}

// cyclesOfSeed is the number of conditions that a seed meets.
const cyclesOfSeed = 20

// deal adds the condition of the next cycle to those that wait: the only one of the options, or each in turn.
func (s *Simulation) deal() {
	s.cycles++
	s.met = false
	dealt := seeds.Deal(conditions, func(c condition) seeds.Condition { return c.Condition },
		s.options.Condition, s.seed*cyclesOfSeed, s.cycles)
	if !slices.ContainsFunc(s.waiting, func(c condition) bool { return c.Name == dealt.Name }) {
		s.waiting = append(s.waiting, dealt)
	}
}

// meetDealt lets the oldest of the waiting conditions come about for which the node is ready, one in a storm
// and one in a calm.
func (s *Simulation) meetDealt() error {
	i := slices.IndexFunc(s.waiting, func(c condition) bool { return c.calm != s.raging && c.ready(s) })
	if s.met || i < 0 {
		return nil
	}
	name := s.waiting[i].Name
	s.met, s.waiting = true, slices.Delete(s.waiting, i, i+1)
	return s.do(Event{Kind: conditionMet, What: name})
}

// meetCondition lets a condition come about.
func (s *Simulation) meetCondition(e Event) error {
	i := slices.IndexFunc(conditions, func(c condition) bool { return c.Name == e.What })
	if i < 0 {
		return fmt.Errorf("meet a condition: %q is unknown", e.What)
	}
	calm, c := s.calm, conditions[i]
	s.note(e.What)
	if c.calm {
		s.calm, s.excused = calm, c.brief
	}
	return c.meet(s)
}

// lasting makes the end of the storm undo a condition.
func (s *Simulation) lasting(undo func() error) { s.undo = append(s.undo, undo) }

// undoConditions ends all conditions.
func (s *Simulation) undoConditions() error {
	undo := s.undo
	s.undo, s.excused = nil, false
	for _, end := range slices.Backward(undo) {
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

func always(*Simulation) bool { return true }

func hasPods(s *Simulation) bool { return len(s.kubelet.Pods()) > 1 }

// listsPods reports whether pods run in a calm, and a source of requests lists them.
func listsPods(s *Simulation) bool { return s.settled() && readsPods(s) && hasPods(s) }

func holdsVFs(s *Simulation) bool { return len(s.kubelet.Holders(model.VFs)) > 0 }

func serves(s *Simulation) bool { return s.server() != nil }

// What a pod requests.
const (
	wholeNode = "a container requests eight GPUs and eight VFs"
	tooMuch   = "a container requests more than the node has"
	nothing   = "a container requests no devices"
	told      = "the coordinator names a container"
)

// count counts what a pod requests.
func (s *Simulation) count(p *model.Pod) {
	for _, c := range p.Containers {
		switch gpus, vfs := c.Requests[model.GPUs], c.Requests[model.VFs]; {
		case gpus == 8 && vfs == 8:
			s.happened[wholeNode]++
		case gpus > 16:
			s.happened[tooMuch]++
		case gpus+vfs == 0:
			s.happened[nothing]++
		}
	}
}
