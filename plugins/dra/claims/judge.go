// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// judgement judges containers with all claims of each: fresh claims, which a call prepares, and claims that
// an earlier call prepared. The kubelet does not call again for a prepared claim of a later pod's container.
type judgement struct {
	*composition // of all claims
	fresh        []Claim
	called       []*resourceapi.ResourceClaim
	pods         []*corev1.Pod
}

// usage is one group of devices of a claim, as a container uses the group.
type usage struct {
	claim Claim
	group string
}

// judgeClaims returns an error if a container with a fresh claim must not start.
func (j *judgement) judgeClaims() error {
	judged, err := j.judgeContainers()
	if err != nil {
		return err
	}
	return j.judgeGroups(judged)
}

// judgeContainers judges the containers of the known pods, and returns the groups of their devices.
func (j *judgement) judgeContainers() (judged map[string]bool, err error) {
	judged = map[string]bool{}
	for _, pod := range j.pods {
		asked := j.alignmentOf(pod.Namespace, []*corev1.Pod{pod})
		for _, c := range containersOf(pod) {
			uses := j.findUsages(pod, &c)
			if !slices.ContainsFunc(uses, j.isFresh) {
				continue
			}
			for _, u := range uses {
				judged[u.group] = true
				if err := j.checkRequests(u, pod); err != nil {
					return nil, err
				}
			}
			if err := j.checkAlignment(uses, asked); err != nil {
				return nil, err
			}
			if err := j.checkSettings(uses, pod, c.Name); err != nil {
				return nil, err
			}
		}
	}
	return judged, nil
}

// judgeGroups judges the other groups of fresh claims, whose containers are not known, by alignment alone.
func (j *judgement) judgeGroups(judged map[string]bool) error {
	for _, called := range j.called {
		claim, _ := FindClaim(j.fresh, called.UID)
		asked := j.alignmentOf(called.Namespace, reservedFor(called, j.pods))
		for _, first := range claim.firstOfGroups() {
			if judged[first.Group] {
				continue
			}
			if err := j.checkAlignment([]usage{{claim, first.Group}}, asked); err != nil {
				return err
			}
		}
	}
	return nil
}

// alignmentOf returns the alignment of pods of a namespace: required if the flags and the annotation of one
// of the pods make it so; that of the flags without a pod.
func (j *judgement) alignmentOf(namespace string, pods []*corev1.Pod) intent.Alignment {
	alignment, _ := j.Policy.AlignmentOf(namespace, nil)
	for i, pod := range pods {
		asked, remark := j.Policy.AlignmentOf(namespace, pod.Annotations)
		if remark != "" {
			j.Log.Warn("ignored part of a pod's alignment annotation",
				"pod", pod.Namespace+"/"+pod.Name, "remark", remark)
		}
		if i == 0 || asked == intent.Required {
			alignment = asked
		}
	}
	return alignment
}

// findUsages returns the groups that a container uses, of all claims. A deleted claim can remain prepared
// while another claim has the same name: the container uses the claim of the call.
func (j *judgement) findUsages(pod *corev1.Pod, container *corev1.Container) (uses []usage) {
	for _, c := range j.claims {
		isOther := func(claim *resourceapi.ResourceClaim) bool {
			return claim.Namespace == c.Namespace && claim.Name == c.Name && claim.UID != c.UID
		}
		if c.Namespace != pod.Namespace || slices.ContainsFunc(j.called, isOther) {
			continue
		}
		for _, first := range c.firstOfGroups() {
			its := func(d Prepared) bool { return d.Group == first.Group && hasRequest(pod, container, c, d) }
			if slices.ContainsFunc(c.Devices, its) {
				uses = append(uses, usage{c, first.Group})
			}
		}
	}
	return uses
}

// hasRequest reports whether a container uses the request of a claim's device.
func hasRequest(pod *corev1.Pod, container *corev1.Container, c Claim, d Prepared) bool {
	requests := requestsOf(pod, container, c.Name)
	return slices.Contains(requests, d.requestName()) || slices.Contains(requests, "")
}

// checkRequests returns an error if a pod uses one request of a group, and other pods use all requests of the
// group together: a container of the pod would get the devices of all requests.
func (j *judgement) checkRequests(u usage, pod *corev1.Pod) error {
	for _, d := range u.claim.Devices {
		isUsed := func(c corev1.Container) bool { return hasRequest(pod, &c, u.claim, d) }
		if d.Group == u.group && !slices.ContainsFunc(containersOf(pod), isUsed) {
			return fmt.Errorf("prepare %s: pods share it, and pod %s/%s does not use request %s, which a container "+
				"of another pod uses together with other requests: it would get the devices of all; use the same "+
				"requests in all pods, or a claim for each", u.claim, pod.Namespace, pod.Name, d.requestName())
		}
	}
	return nil
}

func (j *judgement) isFresh(u usage) bool { return u.claim.isIn(j.fresh) }

// freshOf returns the claim for which a container is rejected: the last one that was not prepared before.
func (j *judgement) freshOf(uses []usage) Claim {
	for _, u := range slices.Backward(uses) {
		if j.isFresh(u) {
			return u.claim
		}
	}
	return Claim{}
}

// checkAlignment returns an error if a container's pod or a claim requires alignment, and a pair of the
// container is on different switches. The error names the changes with which the container could start.
func (j *judgement) checkAlignment(uses []usage, asked intent.Alignment) error {
	otherwise := intent.Relaxation
	switch {
	case slices.ContainsFunc(uses, func(u usage) bool { return u.claim.Required }):
		otherwise = fmt.Sprintf("without alignment: %s in the parameters of the claim or its class the pod would "+
			"start", intent.Required)
	case asked != intent.Required:
		return nil
	case j.Policy.Alignment == intent.Required:
		otherwise = fmt.Sprintf("the driver's flag --alignment=%s asks that of every pod", intent.Required)
	}
	var devices []Prepared
	seen := map[string]bool{}
	for _, u := range uses {
		if !seen[u.group] {
			devices = append(devices, inGroup(j.claims, u.group)...)
		}
		seen[u.group] = true
	}
	return j.index.checkPairs(j.freshOf(uses), devices, otherwise)
}

// checkSettings returns an error if the environments of a container contradict each other: of variables with
// one name in several CDI devices a container keeps one, and of mounts on one path too. Claims of one pod
// alone share an environment. A claim that other pods can use has an environment of its own, which does not
// reveal the devices of this pod.
func (j *judgement) checkSettings(uses []usage, pod *corev1.Pod, container string) error {
	seen, of := map[string]string{}, map[string]Claim{} // by setting: its value, and the claim that sets it
	for _, u := range uses {
		if j.environments[u.group] == nil {
			if err := j.addClaim(u.claim); err != nil {
				return fmt.Errorf("prepare %s: container %s of pod %s/%s uses %s too: %w", j.freshOf(uses), container,
					pod.Namespace, pod.Name, u.claim, err)
			}
		}
		settings := settingsOf(j.environments[u.group])
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if before, known := seen[key]; known && before != settings[key] {
				return fmt.Errorf("prepare %s: container %s of pod %s/%s uses %s too, and both set %s: ask for all "+
					"devices of a container in one claim, or in claims that are made from templates", u.claim, container,
					pod.Namespace, pod.Name, of[key], key)
			}
			seen[key], of[key] = settings[key], u.claim
		}
	}
	return nil
}

// settingsOf returns the variables and mounts of an environment.
func settingsOf(e *environment) map[string]string {
	set := maps.Clone(e.edits.Env)
	if set == nil {
		set = map[string]string{}
	}
	for _, mount := range e.edits.Mounts {
		set["a mount on "+mount.Path] = mount.Host
	}
	return set
}

// claimParameters are the driver's parameters in the opaque configuration of a claim or a device class.
type claimParameters struct {
	APIVersion string `json:"apiVersion,omitempty"` // "tandem.dev/v1"
	Kind       string `json:"kind,omitempty"`       // "ClaimParameters"
	// Alignment "required" means: each pair is on one switch, otherwise the container does not start.
	Alignment intent.Alignment `json:"alignment,omitempty"`
}

// API version and kind of claimParameters; both are optional.
const (
	parametersVersion = pool.Driver + "/v1"
	parametersKind    = "ClaimParameters"
)

// demandOf reports whether a claim itself requires alignment.
func demandOf(claim *resourceapi.ResourceClaim) (bool, error) {
	if claim.Status.Allocation == nil {
		return false, nil
	}
	required := false
	for _, config := range claim.Status.Allocation.Devices.Config {
		if config.Opaque == nil || config.Opaque.Driver != pool.Driver {
			continue
		}
		read, err := readParameters(config.Opaque.Parameters.Raw)
		if err != nil {
			return false, fmt.Errorf("read the parameters of driver %s in claim %s/%s: %w",
				pool.Driver, claim.Namespace, claim.Name, err)
		}
		required = required || read.Alignment == intent.Required
	}
	return required, nil
}

func readParameters(raw []byte) (read claimParameters, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return read, fmt.Errorf(`%w; want {"alignment": "required"}`, err)
	}
	if v, k := read.APIVersion, read.Kind; v != "" && v != parametersVersion || k != "" && k != parametersKind {
		return read, fmt.Errorf("want apiVersion %s and kind %s, not %s and %s",
			parametersVersion, parametersKind, v, k)
	}
	return read, nil
}

// checkPairs returns an error if a pair of containers with these devices is not on one switch, for a claim
// that requires alignment. The error says how to let the containers start.
func (n *nodeIndex) checkPairs(c Claim, devices []Prepared, otherwise string) error {
	choice, err := n.orderDevices(devices)
	if err != nil {
		return err
	}
	isApart := func(p placement.Pair) bool { return !p.Distance.Level.Direct() }
	first := slices.IndexFunc(choice.Pairs, isApart)
	if first < 0 {
		return nil
	}
	apart := choice.Pairs[first]
	free, all := n.vfsNear(apart.GPU)
	return fmt.Errorf("refuse %s: alignment is required and only %d of %d pairs are on one switch: "+
		"GPU %s and VF %s are %s apart; below switch %s %d of %d VFs are free; ask for devices of class pair.%s, "+
		"which are on one switch always; %s", c, placement.Together(choice.Pairs), len(choice.Pairs),
		apart.GPU.Address, apart.VF.Address, apart.Distance.Level,
		n.state.Machine.Tree.Switch(apart.GPU.Address), free, all, pool.Driver, otherwise)
}

// vfsNear counts the VFs on one switch with a GPU.
func (n *nodeIndex) vfsNear(gpu placement.Device) (free, all int) {
	for id := range n.vfs {
		if n.sameSwitch(gpu.ID, id) {
			all++
			if n.isAvailable(id) {
				free++
			}
		}
	}
	return free, all
}
