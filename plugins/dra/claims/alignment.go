// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
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
