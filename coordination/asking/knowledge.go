package asking

import (
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// FirstHalf is why the asking container has no devices yet.
const FirstHalf = "first half"

// TakesOver is why the devices of an init container count as the asking container's: they go to the next one
// of its pod.
const TakesOver = "takes over from an init container"

// Half says which part of a container's devices a question is for, given what it holds.
func (a *Asker) Half(holder *ledger.Allocation) string {
	switch {
	case holder.Devices == nil:
		return FirstHalf
	case holder.IsOf(&a.Recipient), holder.Owner == nil && holder.Recipient == nil:
		return "second half"
	default:
		return TakesOver
	}
}

// Knowledge is what was known of who asks, and by which source, for people and records of decisions.
type Knowledge struct {
	Source intent.Source
	Why    string // which half of which container is taken to be asked for
	Remark string // what came of the devices that a scheduler chose; "" where none did
	Asker  *Asker // nil where no source of intent told
}

// String says the source and what it told; "" where nothing was asked.
func (k Knowledge) String() string {
	if k.Source == "" {
		return ""
	}
	text := string(k.Source) + ": " + k.Why
	if k.Asker != nil {
		text = string(k.Source) + ": " + k.Asker.describe() + ", " + k.Why
	}
	if k.Remark != "" {
		text += "; " + k.Remark
	}
	return text
}

// Likely is the container that asks or is given devices, nil while it is not known.
func Likely(to *ledger.Recipient, holder *ledger.Allocation) *kubelet.Container {
	if to == nil || len(to.Pods) > 1 {
		return holder.Owner
	}
	c := to.Container()
	return &c
}
