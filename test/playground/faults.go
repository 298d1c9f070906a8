// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology"
)

// healTime limits the wait for a healed function: a plugin waits for the end of the longest window of a rule
// that a fault exceeds, and then a minute.
const healTime = 3 * time.Minute

// fail makes a GPU or a NIC fail.
func (p *Playground) fail(ctx context.Context, words []string) (string, error) {
	return p.harm(ctx, words, health.Failed)
}

// degrade makes a GPU or a NIC worse.
func (p *Playground) degrade(ctx context.Context, words []string) (string, error) {
	return p.harm(ctx, words, health.Degraded)
}

// harm changes the files of a function, and waits until the plugins know.
func (p *Playground) harm(ctx context.Context, words []string, state health.State) (string, error) {
	if len(words) != 1 {
		return "", errUsage
	}
	f, err := p.function(words[0])
	if err != nil {
		return "", err
	}
	for worse := state; worse <= health.Failed; worse++ {
		if p.faults[f.Address][worse] != nil {
			return "", fmt.Errorf("%s: already %s", p.name(f), worse)
		}
	}
	harm := p.sysfsOf(f).degrade
	if state == health.Failed {
		harm = p.sysfsOf(f).fail
	}
	repair, err := harm()
	if err != nil {
		return "", fmt.Errorf("make %s %s: %w", p.name(f), state, err)
	}
	if p.faults[f.Address] == nil {
		p.faults[f.Address] = map[health.State]func() error{}
	}
	p.faults[f.Address][state] = repair
	ctx, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	return p.awaitState(ctx, f, state)
}

// heal repairs functions, and waits until the plugins offer their devices as good ones.
func (p *Playground) heal(ctx context.Context, words []string) (string, error) {
	if len(words) == 0 {
		return "", errUsage
	}
	var healed []*topology.Device
	for _, word := range words {
		f, err := p.function(word)
		if err != nil {
			return "", err
		}
		if len(p.faults[f.Address]) == 0 {
			return "", fmt.Errorf("%s has no fault", p.name(f))
		}
		if !slices.Contains(healed, f) { // by another of its devices
			healed = append(healed, f)
		}
	}
	for _, f := range healed {
		if err := p.repair(f); err != nil {
			return "", err
		}
	}
	ctx, stop := context.WithTimeout(ctx, healTime)
	defer stop()
	var text strings.Builder
	for _, f := range healed {
		line, err := p.awaitState(ctx, f, health.Good)
		text.WriteString(line)
		if err != nil {
			return text.String(), err
		}
	}
	return text.String(), nil
}

// repair ends all faults of a function.
func (p *Playground) repair(f *topology.Device) error {
	repairs := p.faults[f.Address]
	delete(p.faults, f.Address)
	for _, repair := range repairs { // in any order: no file is of two faults
		if err := repair(); err != nil {
			return fmt.Errorf("heal %s: %w", p.name(f), err)
		}
	}
	return nil
}

// function returns the GPU or the NIC of a device: a GPU, a part of a GPU, a NIC or a VF.
func (p *Playground) function(word string) (*topology.Device, error) {
	address, known := p.cards()[word]
	if !known {
		return nil, MistakeError{fmt.Errorf("device %q: want a GPU, NIC or VF as in status -o wide, or as on the "+
			"page: GPU0, NIC0", word)}
	}
	f, _ := p.machine.Tree.Device(address) // of the same tree
	return f, nil
}

// cards returns the functions of GPUs and NICs, by their addresses, the IDs of their devices, and their names
// on the page and in topo.
func (p *Playground) cards() map[string]topology.Address {
	cards := map[string]topology.Address{}
	for i, g := range p.machine.GPUs {
		cards[fmt.Sprint("GPU", i)] = g.Address
		cards[g.Address.String()] = g.Address
		for _, part := range p.machine.Parts[g.Address] {
			cards[part.ID] = g.Address
		}
	}
	for i, nic := range p.machine.RDMANICs() {
		cards[fmt.Sprint("NIC", i)] = nic.Address
		cards[nic.Address.String()] = nic.Address
		for _, vf := range nic.VFs {
			cards[vf.String()] = nic.Address
		}
	}
	if p.standIn != nil {
		maps.Copy(cards, p.standIn.cards())
	}
	return cards
}

// name returns the name of a function for people.
func (p *Playground) name(f *topology.Device) string {
	if gpu.Vendor(f) != "" {
		return "GPU " + f.Address.String()
	}
	return "NIC " + f.Address.String()
}

// awaitState waits until all devices of a function have a state, for the coordinator and the kubelet, and
// describes them.
func (p *Playground) awaitState(ctx context.Context, f *topology.Device, state health.State) (string, error) {
	var devices []*api.Device
	var resource string
	err := p.poll(ctx, fmt.Sprintf("the state %s of %s", state, p.name(f)), func() bool {
		answer, err := coordinator.AskStatus(ctx, p.RunDir())
		if err != nil {
			return false
		}
		resource, devices = p.devicesOf(answer, f)
		return p.agree(resource, devices, state)
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s: %s", p.name(f), state)
	if reason := devices[0].GetReason(); reason != "" {
		text += " (" + reason + ")"
	}
	return fmt.Sprintf("%s, with %s of %s\n", text, cli.Count(len(devices), "device"), resource), nil
}

// devicesOf returns the devices of a function, and the resource that they are of.
func (p *Playground) devicesOf(
	answer *api.StatusResponse, f *topology.Device,
) (resource string, list []*api.Device) {
	cards := p.cards()
	for _, r := range answer.GetResources() {
		for _, d := range r.GetDevices() {
			if cards[d.GetDevice().GetAddress()] == f.Address {
				resource, list = r.GetName(), append(list, d.GetDevice())
			}
		}
	}
	return resource, list
}

// agree reports whether devices have a state, also for the kubelet.
func (p *Playground) agree(resource string, devices []*api.Device, state health.State) bool {
	healthy := map[string]bool{}
	for _, id := range p.kubelet.Healthy(resource) {
		healthy[id] = true
	}
	for _, d := range devices {
		if stateOf(d) != state || healthy[d.GetId()] != d.GetHealthy() {
			return false
		}
	}
	return len(devices) > 0
}

func stateOf(d *api.Device) health.State {
	switch {
	case !d.GetHealthy():
		return health.Failed
	case d.GetDegraded():
		return health.Degraded
	default:
		return health.Good
	}
}
