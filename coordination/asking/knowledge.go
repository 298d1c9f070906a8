// SPDX-License-Identifier: Apache-2.0

package asking

import (
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// The states of an asking container.
const (
	FirstHalf  = "first half"  // no devices yet
	SecondHalf = "second half" // some devices, with more to follow
	// TakesOver is the state of a container with devices of an init container of its pod: the kubelet passes
	// them on to the next container.
	TakesOver = "takes over from an init container"
)

// Knowledge describes the identification of an asking container, for people and for records of decisions.
type Knowledge struct {
	Source intent.Source
	Why    string // the half of the container
	Remark string // use of devices chosen by a scheduler; "" for none chosen
	Asker  *Asker // nil without a request source
}

// For returns the knowledge as text, for a question about a kind of devices; "" without a question.
func (k Knowledge) For(kind device.Kind) string {
	if k.Source == "" {
		return ""
	}
	var known []string
	if k.Asker != nil {
		known = append(known, k.Asker.describe())
	}
	known = append(known, describeOrder(kind, k.Why))
	if k.Remark != "" {
		known = append(known, k.Remark)
	}
	source := "told by " + string(k.Source)
	return shorten(strings.Join(known, "; "), maxKnown-len(source)) + "; " + source
}

// maxKnown limits the text of a Knowledge, in bytes. A pod can request any number of resources, and the text
// is stored with the decision.
const maxKnown = 512

// shorten cuts a text longer than a number of bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// describeOrder adds the order of the kubelet's calls for a container's two kinds, if known.
func describeOrder(kind device.Kind, why string) string {
	if rest, first := strings.CutPrefix(why, FirstHalf); first {
		return "kubelet asked first for " + kind.Plural() + rest
	}
	if rest, second := strings.CutPrefix(why, SecondHalf); second {
		return "kubelet asked for " + kind.Plural() + " after " + kind.Other().Plural() + rest
	}
	return why
}
