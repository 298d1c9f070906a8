package ledger

import (
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Recipient is the container that devices were given to, as a source of intent told: which one it is, and
// what it is to get. It never changes.
type Recipient struct {
	Source    intent.Source    `json:"source"`
	Pod       kubelet.Pod      `json:"pod"`
	UID       string           `json:"uid"` // of the pod
	Created   time.Time        `json:"created"`
	Alignment intent.Alignment `json:"alignment,omitempty"` // absent where the pod says nothing
	Index     int              `json:"index"`               // of the container among those of its pod
	Name      string           `json:"name"`
	Role      intent.Role      `json:"role,omitempty"`
	Requests  map[string]int   `json:"requests,omitempty"` // for resources that a plugin has announced
	// what it wants is certain; else other containers that want something else may have got the devices
	Exact bool `json:"exact,omitempty"`
	// of which one is its own: that of every container that may have got the devices
	Pods []kubelet.Pod `json:"pods,omitempty"`
}

// Container is its name.
func (r *Recipient) Container() kubelet.Container { return kubelet.Container{Pod: r.Pod, Name: r.Name} }

// Is reports whether two are the same container of the same pod. Nobody is nobody.
func (r *Recipient) Is(other *Recipient) bool {
	return r != nil && other != nil && r.UID == other.UID && r.Container() == other.Container()
}

// AsksForAll reports whether a container asks for all the resources of which an allocation has devices.
func (r *Recipient) AsksForAll(held *Allocation) bool {
	for name := range held.Devices {
		if r.Requests[name] == 0 {
			return false
		}
	}
	return true
}
