package ledger

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Allocation is what one container was given, and what is known of it. Its devices are changed by the ledger
// alone; what is known, by who learns more.
type Allocation struct {
	ID      int                       `json:"id"`      // by which it is known while its devices change; 0 before it has any
	Devices map[string]map[string]int `json:"devices"` // resource → device ID → sequence of the Allocate that gave it

	Owner      *kubelet.Container `json:"owner,omitempty"`      // nil until PodResources has shown it
	Candidates []kubelet.Pod      `json:"candidates,omitempty"` // while the owner is not known: the pods that it can be
	Container  string             `json:"-"`                    // its name, once the kubelet's checkpoint has shown it
	UID        string             `json:"uid,omitempty"`        // of its pod, likewise

	Recipient *Recipient `json:"recipient,omitempty"` // nil where no source of intent told
	// sequence of the first Allocate for the recipient: what it has from before was its init container's
	Since int `json:"since,omitempty"`

	Looked bool `json:"looked,omitempty"` // PodResources was read before its first device was given
	// the kubelet had no choice for its first devices: they were all that was free on its nodes
	Unasked bool `json:"unasked,omitempty"`
	// its second half was asked for though nothing shows that its container lives: the kubelet can have failed
	// it, and have asked for another one
	Guessed bool `json:"-"`
	// the kubelet has started since it was given, and has not listed its pod yet
	Unlisted bool `json:"-"`
	// the kubelet has offered a device of it, and nothing told whether its container lives
	Doubtful bool `json:"-"`
	// its container ended while the kubelet was asking for another
	Ending bool `json:"-"`
}

// Clone copies an allocation.
func (a *Allocation) Clone() *Allocation {
	next := *a
	if a.Devices != nil {
		next.Devices = make(map[string]map[string]int, len(a.Devices))
	}
	for name, ids := range a.Devices {
		next.Devices[name] = maps.Clone(ids)
	}
	return &next
}

// Lacks reports whether an allocation has no device of a resource.
func (a *Allocation) Lacks(name string) bool { return len(a.Devices[name]) == 0 }

// Sequence is that of the newest device of an allocation; 0 where all were given before we watched.
func (a *Allocation) Sequence() int {
	newest := 0
	if a == nil {
		return newest
	}
	for name := range a.Devices {
		newest = max(newest, a.NewestOf(name))
	}
	return newest
}

// NewestOf is the sequence of the newest device of a resource; 0 where there is none.
func (a *Allocation) NewestOf(name string) int {
	newest := 0
	for _, sequence := range a.Devices[name] {
		newest = max(newest, sequence)
	}
	return newest
}

// sequenceOf is that of one device of an allocation, 0 where there is none: it was given before we watched.
func (a *Allocation) sequenceOf(name, id string) int {
	if a == nil {
		return 0
	}
	return a.Devices[name][id]
}

// MayBelong reports whether an allocation of unknown owner can be of a pod.
func (a *Allocation) MayBelong(pod kubelet.Pod) bool {
	return a.Candidates == nil || slices.Contains(a.Candidates, pod)
}

// Identified reports whether it is known whose an allocation is: of one pod, if not yet of which of its
// containers.
func (a *Allocation) Identified() bool { return a.Owner != nil || len(a.Candidates) == 1 }

// Pods are those that an allocation can be of; none where that is not known.
func (a *Allocation) Pods() []kubelet.Pod {
	if a.Owner != nil {
		return []kubelet.Pod{a.Owner.Pod}
	}
	return a.Candidates
}

// IsOf reports whether an allocation is a container's own: PodResources shows it, or it was seen to be given.
// A pod that was created anew under its name is another one.
func (a *Allocation) IsOf(who *Recipient) bool {
	if uid := a.PodUID(); uid != "" && uid != who.UID {
		return false
	}
	return a.Recipient.Is(who) || a.Owner != nil && *a.Owner == who.Container()
}

// PodUID is the UID of an allocation's pod, "" while it is not known.
func (a *Allocation) PodUID() string {
	if a.UID == "" && a.Recipient != nil && (a.Owner != nil || len(a.Recipient.Pods) == 1) {
		return a.Recipient.UID
	}
	return a.UID
}

// ContainerName is the container of an allocation, false while it is not known.
func (a *Allocation) ContainerName() (kubelet.Container, bool) {
	switch {
	case a.Owner != nil:
		return *a.Owner, true
	case a.Recipient != nil:
		return a.Recipient.Container(), true
	default:
		return kubelet.Container{}, false
	}
}

// OwnerName names the container of an allocation, for people.
func (a *Allocation) OwnerName() string {
	switch {
	case a.Owner != nil:
		return a.Owner.String()
	case a.Recipient != nil:
		return a.Recipient.Container().String()
	case len(a.Candidates) == 1:
		return "a container of " + a.Candidates[0].Namespace + "/" + a.Candidates[0].Name
	default:
		return "an init container"
	}
}

// Shown finds the container that a view has with at least one device of an allocation: its owner, where that
// is known.
func (a *Allocation) Shown(view kubelet.View) (kubelet.Container, bool) {
	if a.Owner != nil {
		return *a.Owner, a.ShownBy(view, *a.Owner)
	}
	for c := range view.Containers {
		if a.ShownBy(view, c) {
			return c, true
		}
	}
	return kubelet.Container{}, false
}

// ShownBy reports whether a view has a container with at least one device of an allocation.
func (a *Allocation) ShownBy(view kubelet.View, c kubelet.Container) bool {
	for name, ids := range view.Containers[c] {
		for _, id := range ids {
			if _, ok := a.Devices[name][id]; ok {
				return true
			}
		}
	}
	return false
}
