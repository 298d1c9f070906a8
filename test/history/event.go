// SPDX-License-Identifier: Apache-2.0

package history

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	Arrival      Kind = "arrival"      // the kubelet begins to admit a pod: Spec
	Alignment    Kind = "alignment"    // the Topology Manager chooses NUMA nodes for a container: Nodes
	Question     Kind = "question"     // GetPreferredAllocation: Offer, then Devices
	Allocation   Kind = "allocation"   // Allocate: Devices, then Named or Refusal
	Verdict      Kind = "verdict"      // the kubelet has admitted or rejected the pod: Refusal, Own
	Confirmation Kind = "confirmation" // the kubelet's records show a container: Held
	View         Kind = "view"         // Tandem's view of the node: Free
	Release      Kind = "release"      // from the end of a pod until the kubelet frees the pod's devices
	Killed       Kind = "killed"       // a process: Text
	Started      Kind = "started"      // a process: Text; a kubelet until all pods are listed again
	Fault        Kind = "fault"        // another fault: Text
	Storm        Kind = "storm"        // faults begin: Exempt
	Calm         Kind = "calm"         // all faults have ended, and Tandem has read all sources since
)

// Names of processes.
const (
	Kubelet     = "kubelet"
	Coordinator = "coordinator"
)

// Event is an event of a node with its interval. Fields without a meaning for the kind are empty.
type Event struct {
	Kind   Kind   `json:"kind"`
	Call   int64  `json:"call"`             // time at the begin, at least 1
	Return int64  `json:"return,omitempty"` // time at the end; 0 for an event that is not over
	Node   string `json:"node,omitempty"`

	Pod       string `json:"pod,omitempty"` // namespace and name
	UID       string `json:"uid,omitempty"` // of the pod; kubelets may reuse a name, not a UID
	Container string `json:"container,omitempty"`
	Resource  string `json:"resource,omitempty"`

	Spec    *Spec               `json:"spec,omitempty"`
	Nodes   []int               `json:"nodes,omitempty"` // none: all NUMA nodes
	Offer   *Offer              `json:"offer,omitempty"`
	Devices []string            `json:"devices,omitempty"` // answered or allocated, of Resource
	Held    map[string][]string `json:"held,omitempty"`    // devices in the kubelet's records, by resource

	Free    map[string][]string `json:"free,omitempty"`  // devices that the answer took for free; nil if unknown
	Alone   bool                `json:"alone,omitempty"` // the plugin acted without the coordinator's answer
	Order   []string            `json:"order,omitempty"` // the allocated devices as Tandem lists them
	Named   *Name               `json:"named,omitempty"` // the owner of the devices in Tandem's view
	Refusal string              `json:"refusal,omitempty"`
	Own     bool                `json:"own,omitempty"` // the refusal is the kubelet's own decision
	Text    string              `json:"text,omitempty"`
	Exempt  []Promise           `json:"exempt,omitempty"` // for this event, and later events of the pod
}

// Spec is a pod as far as the promises depend on the pod.
type Spec struct {
	Required   bool        `json:"required,omitempty"` // the annotation tandem.dev/alignment
	Containers []Container `json:"containers"`
}

// Container is a container of a pod.
type Container struct {
	Name     string         `json:"name"`
	Init     bool           `json:"init,omitempty"` // later containers take over the devices
	Requests map[string]int `json:"requests,omitempty"`
}

// Offer is the kubelet's choice for a container.
type Offer struct {
	Available   []string `json:"available"`
	MustInclude []string `json:"mustInclude,omitempty"`
	Size        int      `json:"size"`
}

// Name names a container in Tandem's view.
type Name struct {
	Pod       string `json:"pod"` // namespace and name
	Container string `json:"container,omitempty"`
}

// container returns a container of a pod, or nil.
func (s *Spec) container(name string) *Container {
	if s == nil {
		return nil
	}
	for i := range s.Containers {
		if s.Containers[i].Name == name {
			return &s.Containers[i]
		}
	}
	return nil
}
