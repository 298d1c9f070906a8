package asking

import (
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
)

// FirstHalf is why the asking container has no devices yet, and SecondHalf why it has some: more may follow.
const (
	FirstHalf  = "first half"
	SecondHalf = "second half"
)

// TakesOver is why the devices of an init container count as the asking container's: they go to the next one
// of its pod.
const TakesOver = "takes over from an init container"

// Half says which part of a container's devices a question is for, given what it holds.
func (a *Asker) Half(holder *ledger.Allocation) string {
	switch {
	case holder.Devices == nil:
		return FirstHalf
	case holder.IsOf(&a.Recipient), holder.Owner == nil && holder.Recipient == nil:
		return SecondHalf
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
	Shown  bool   // PodResources has shown the container with what it has
}

// For says what was known of who asks for a kind of devices, and who told it; "" where nothing was asked.
func (k Knowledge) For(kind device.Kind) string {
	if k.Source == "" {
		return ""
	}
	var known []string
	if k.Asker != nil {
		known = append(known, k.Asker.describe())
	}
	known = append(known, order(kind, k.Why))
	if k.Remark != "" {
		known = append(known, k.Remark)
	}
	source := "told by " + string(k.Source)
	return shortened(strings.Join(known, "; "), maxKnown-len(source)) + "; " + source
}

// maxKnown bounds what is said of who asks, in bytes: pods can ask for as many resources as they like, and it
// is written down with the decision.
const maxKnown = 512

// shortened is a text, cut where it is longer than so many bytes.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// order says in which order the kubelet asks for a container's two resources, where that is known.
func order(kind device.Kind, why string) string {
	if rest, first := strings.CutPrefix(why, FirstHalf); first {
		return "kubelet asked first for " + kind.Plural() + rest
	}
	if rest, second := strings.CutPrefix(why, SecondHalf); second {
		return "kubelet asked for " + kind.Plural() + " after " + kind.Other().Plural() + rest
	}
	return why
}

// Likely is the container that asks or is given devices, nil while it is not known.
func Likely(to *ledger.Recipient, holder *ledger.Allocation) *kubelet.Container {
	if to == nil || len(to.Pods) > 1 {
		return holder.Owner
	}
	c := to.Container()
	return &c
}
