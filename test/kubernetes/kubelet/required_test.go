// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// Pods that ask for alignment come beside pods that do not. The former are refused if, and only if, not all
// of their pairs can be on one switch each, the latter never.

const (
	alignment = "tandem.dev/alignment"
	required  = "required"
)

// misaligned are the words by which a refusal for that reason is known.
const misaligned = "alignment is required"

// What a long campaign has to have seen.
const (
	asRequired       = "aligned as required"
	refusedAlignment = "refused: alignment is required"
)

func (c *chaos) saw(what string) {
	c.counts[what]++
	c.faults.happened[what] = true
}

func isRequired(pod *v1.Pod) bool { return pod.Annotations[alignment] == required }

// requireSome makes every third pod one that asks for alignment.
func (c *chaos) requireSome(pod *v1.Pod) *v1.Pod {
	if c.random.IntN(3) == 0 {
		pod.Annotations = map[string]string{alignment: required}
	}
	return pod
}

// isMisaligned reports whether a pod was refused since the pod asks for alignment. The history judges whether
// the refusal is right.
func (c *chaos) isMisaligned(pod *v1.Pod, message string) bool {
	c.t.Helper()
	if !strings.Contains(message, misaligned) {
		return false
	}
	c.saw(refusedAlignment)
	if !isRequired(pod) {
		c.t.Errorf("pod %s does not ask for alignment: %s", pod.Name, message)
	}
	return true
}

// choosesApart reports whether a plugin has chosen devices without the other plugin, whose version is
// different: only by chance the other half of the container is then on the same switches.
func choosesApart(line pair.Line) bool {
	return line.Message == "preferred" && line.Source == "local" &&
		strings.Contains(line.Text, "another protocol version")
}

// countAligned counts containers with pairs that are aligned as required.
func (c *chaos) countAligned(pod *v1.Pod, p rig.Placement) {
	if isRequired(pod) && p.IsPaired() && c.told() {
		c.saw(asRequired)
	}
}
