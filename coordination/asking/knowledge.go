package asking

import (
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// FirstHalf is why the asking container has no devices yet, and SecondHalf why it has some: more may follow.
const (
	FirstHalf  = "first half"
	SecondHalf = "second half"
)

// TakesOver is why the devices of an init container count as the asking container's: they go to the next one
// of its pod.
const TakesOver = "takes over from an init container"

// Knowledge is what was known of who asks, and by which source, for people and records of decisions.
type Knowledge struct {
	Source intent.Source
	Why    string // which half of which container is taken to be asked for
	Remark string // what came of the devices that a scheduler chose; "" where none did
	Asker  *Asker // nil where no source of intent told
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
