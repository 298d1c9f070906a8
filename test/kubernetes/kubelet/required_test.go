// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/best"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/topology"
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

// aligned reports whether all pairs are on one switch each.
func aligned(pairs best.Pairs) bool {
	for level, count := range pairs {
		if count > 0 && !topology.Level(level).SameSwitch() {
			return false
		}
	}
	return true
}

// isMisaligned reports whether a pod was refused since it asks for alignment, and judges whether it had to
// be.
func (c *chaos) isMisaligned(pod *v1.Pod, message string) bool {
	c.t.Helper()
	if !strings.Contains(message, misaligned) {
		return false
	}
	c.saw(refusedAlignment)
	if !isRequired(pod) {
		c.t.Errorf("pod %s does not ask for alignment: %s", pod.Name, message)
		return true
	}
	lines, _ := c.Pair.Log.Since(c.began)
	if slices.ContainsFunc(lines, tellsLateness) {
		c.count.late++
		return true
	}
	if c.freed == c.admissions {
		c.counts["refused: alignment is required, and a pod ended meanwhile"]++
		return true
	}
	if c.dead { // the kubelet has no devices of it to choose from, so that nobody can tell
		c.counts["refused: alignment is required, and a daemon or the kubelet is dead"]++
		return true
	}
	if slices.ContainsFunc(lines, choosesApart) {
		c.counts["refused: alignment is required, and the plugins have different versions"]++
		return true
	}
	container, could, err := c.CouldHave(pod)
	c.must(err)
	if aligned(could) {
		c.t.Errorf("pod %s, container %s could have had %v: %s\n%s",
			pod.Name, container, could, message, pair.Text(lines))
	}
	return true
}

// choosesApart reports whether a plugin has chosen devices without the other plugin, whose version is
// different: only by chance the other half of the container is then on the same switches.
func choosesApart(line pair.Line) bool {
	return line.Message == "preferred" && line.Source == "local" &&
		strings.Contains(line.Text, "another protocol version")
}

// checkAligned judges a container that has been admitted, of which the daemons were told that its pod asks
// for alignment.
func (c *chaos) checkAligned(pod *v1.Pod, p rig.Placement) {
	untold := func(line pair.Line) bool { return line.Message == "preferred" && !c.isTold(line) }
	if !isRequired(pod) || !p.IsPaired() || !c.told() || isLate(p) || slices.ContainsFunc(p.Log, untold) {
		return
	}
	if c.saw(asRequired); !aligned(p.Matched) {
		c.t.Errorf("pod %s asks for alignment, and container %s has %v\n%s",
			pod.Name, p.Container, p.Matched, pair.Text(p.Log))
	}
}
