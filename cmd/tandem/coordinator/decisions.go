// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// Decision is one question of the kubelet and what came of it.
type Decision struct {
	Time      time.Time `json:"time"`
	Container string    `json:"container"` // namespace/pod/container
	PodUID    string    `json:"podUID,omitempty"`
	Resource  string    `json:"resource"`
	// false: the kubelet had no choice, or was answered without the coordinator
	Asked       bool                `json:"asked"`
	Size        uint32              `json:"size"`
	Available   uint32              `json:"available"`
	MustInclude []string            `json:"mustInclude,omitempty"`
	Known       string              `json:"known,omitempty"`   // who asks, and what told it
	Chosen      []string            `json:"chosen,omitempty"`  // the answer
	Planned     map[string][]string `json:"planned,omitempty"` // by resource, for the rest of the request
	Pairs       []Pair              `json:"pairs,omitempty"`
	Reason      string              `json:"reason,omitempty"`
	Switches    []SwitchState       `json:"switches,omitempty"`
	Took        time.Duration       `json:"tookNanoseconds,omitempty"`
	// in the order in which the container lists them
	Allocated   []string   `json:"allocated,omitempty"`
	AllocatedAt *time.Time `json:"allocatedAt,omitempty"`
	Refusal     string     `json:"refusal,omitempty"`
	Held        bool       `json:"held,omitempty"`       // the container has the devices still
	EarlierPod  bool       `json:"earlierPod,omitempty"` // of a deleted pod of the same name
}

// Pair is a GPU and the VF that serves it.
type Pair struct {
	GPU      string `json:"gpu"`
	VF       string `json:"vf"`
	Distance string `json:"distance"`
}

// SwitchState is a switch at the time of a decision.
type SwitchState struct {
	Name      string `json:"name"`
	FreeGPUs  uint32 `json:"freeGPUs"`
	FreeVFs   uint32 `json:"freeVFs"`
	TakenGPUs uint32 `json:"takenGPUs"`
	TakenVFs  uint32 `json:"takenVFs"`
	Alone     string `json:"alone,omitempty"` // what this switch alone would have given
}

func newDecisions(answer *api.ExplainResponse) []Decision {
	decisions := []Decision{}
	for _, m := range answer.GetDecisions() {
		d := Decision{
			Time: time.Unix(0, m.GetTimeUnixNano()), Container: ownerText(m.GetContainer()), PodUID: m.GetPodUid(),
			Resource: m.GetResource(),
			Asked:    m.GetAsked(), Size: m.GetSize(), Available: m.GetAvailable(), MustInclude: m.GetMustInclude(),
			Known: m.GetKnown(), Chosen: m.GetChosen(), Reason: m.GetReason(), Took: time.Duration(m.GetTookNano()),
			Allocated: m.GetAllocated(), Refusal: m.GetRefusal(), Held: m.GetHeld(),
		}
		for name, ids := range m.GetPlanned() {
			if d.Planned == nil {
				d.Planned = map[string][]string{}
			}
			d.Planned[name] = ids.GetIds()
		}
		for _, p := range m.GetPairs() {
			d.Pairs = append(d.Pairs, Pair{p.GetGpu(), p.GetVf(), p.GetDistance()})
		}
		for _, o := range m.GetOptions() {
			d.Switches = append(d.Switches, SwitchState{
				o.GetSwitch(), o.GetFreeGpus(), o.GetFreeVfs(), o.GetTakenGpus(), o.GetTakenVfs(), o.GetResult(),
			})
		}
		if at := m.GetAllocatedUnixNano(); at != 0 {
			allocated := time.Unix(0, at)
			d.AllocatedAt = &allocated
		}
		decisions = append(decisions, d)
	}
	return decisions
}
