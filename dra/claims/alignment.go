// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Parameters are the driver's parameters in the opaque configuration of a claim or a device class.
type Parameters struct {
	APIVersion string `json:"apiVersion,omitempty"` // "tandem.dev/v1"
	Kind       string `json:"kind,omitempty"`       // "ClaimParameters"
	// Alignment "required" means: each pair is on one switch, otherwise the container does not start.
	Alignment intent.Alignment `json:"alignment,omitempty"`
}

// API version and kind of Parameters; both are optional.
const (
	ParametersVersion = pool.Driver + "/v1"
	ParametersKind    = "ClaimParameters"
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

func readParameters(raw []byte) (read Parameters, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return read, fmt.Errorf(`%w; want {"alignment": "required"}`, err)
	}
	if v, k := read.APIVersion, read.Kind; v != "" && v != ParametersVersion || k != "" && k != ParametersKind {
		return read, fmt.Errorf("want apiVersion %s and kind %s, not %s and %s",
			ParametersVersion, ParametersKind, v, k)
	}
	return read, nil
}

// demands returns the changes with which a claim could start without all its pairs on one switch each, or ""
// if it may start as it is. Each of several pods that share the claim can require alignment.
func demands(
	policy intent.Policy, log *slog.Logger, claim *resourceapi.ResourceClaim, pods []*corev1.Pod,
) (otherwise string, err error) {
	required, err := demandOf(claim)
	if err != nil {
		return "", err
	}
	alignment, _ := policy.AlignmentOf(claim.Namespace, nil)
	for i, pod := range reservedFor(claim, pods) {
		asked, remark := policy.AlignmentOf(claim.Namespace, pod.Annotations)
		if remark != "" {
			log.Warn("ignored part of a pod's alignment annotation",
				"pod", pod.Namespace+"/"+pod.Name, "remark", remark)
		}
		if i == 0 || asked == intent.Required {
			alignment = asked
		}
	}
	switch {
	case required:
		return fmt.Sprintf("without alignment: %s in the parameters of the claim or its class the pod would start",
			intent.Required), nil
	case alignment != intent.Required:
		return "", nil
	case cmp.Or(policy.Alignment, intent.Preferred) == intent.Required:
		return fmt.Sprintf("the driver's flag --alignment=%s asks that of every pod", intent.Required), nil
	default:
		return intent.Relaxation, nil
	}
}

// align returns an error if alignment is required and a container of a claim would get a pair that is apart.
// It compares the devices of the claim's groups, and the devices of each container by all of its claims,
// among all claims of the node.
func (p *Preparer) align(
	d *decision, claim *resourceapi.ResourceClaim, c Claim, all []Claim, pods []*corev1.Pod,
) error {
	otherwise, err := demands(p.Policy, p.Log, claim, pods)
	if err != nil || otherwise == "" {
		return err
	}
	for _, first := range c.firsts() {
		if err := d.misaligned(c, inGroup(all, first.Group), otherwise); err != nil {
			return err
		}
	}
	always, err := demandOf(claim)
	if err != nil {
		return err
	}
	for _, pod := range reservedFor(claim, pods) {
		if asked, _ := p.Policy.AlignmentOf(claim.Namespace, pod.Annotations); !always && asked != intent.Required {
			continue
		}
		for _, container := range containers(pod) {
			if len(c.usedBy(pod, &container)) == 0 {
				continue
			}
			if err := d.misaligned(c, containerDevices(pod, &container, c, all), otherwise); err != nil {
				return err
			}
		}
	}
	return nil
}

// usedBy returns the devices of a claim that a container uses.
func (c Claim) usedBy(pod *corev1.Pod, container *corev1.Container) (devices []Prepared) {
	if c.Namespace != pod.Namespace {
		return nil
	}
	named := &resourceapi.ResourceClaim{}
	named.Name = c.Name
	requests := requestsOf(pod, container, named)
	for _, d := range c.Devices {
		if slices.Contains(requests, d.request()) || slices.Contains(requests, "") {
			devices = append(devices, d)
		}
	}
	return devices
}

// containerDevices returns the devices that a container has by any claim. Of claims with the name of the
// given claim it uses only that claim: a deleted claim can remain prepared for a while.
func containerDevices(
	pod *corev1.Pod, container *corev1.Container, given Claim, all []Claim,
) (devices []Prepared) {
	for _, c := range all {
		if c.UID == given.UID || c.Name != given.Name {
			devices = append(devices, c.usedBy(pod, container)...)
		}
	}
	return devices
}

// misaligned returns an error if a claim requires alignment and a pair of containers with these devices is
// not on one switch. The error says how to let the containers start.
func (n *nodeIndex) misaligned(c Claim, devices []Prepared, otherwise string) error {
	choice, err := n.lists(devices)
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
			if n.available(id) {
				free++
			}
		}
	}
	return free, all
}
