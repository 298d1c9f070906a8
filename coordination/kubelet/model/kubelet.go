// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Kubelet is how the kubelet of a node admits pods: fields of its configuration
// (k8s.io/kubelet/config/v1beta1), under their own names.
type Kubelet struct {
	// TopologyManagerPolicy is empty if it could not be read; refusals then cannot be predicted.
	TopologyManagerPolicy        string            `json:"topologyManagerPolicy,omitempty"`
	TopologyManagerScope         string            `json:"topologyManagerScope,omitempty"`
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
	CPUManagerPolicy             string            `json:"cpuManagerPolicy,omitempty"`
	CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	ReservedSystemCPUs           string            `json:"reservedSystemCPUs,omitempty"`
	// ReservedCPUs is the number of CPUs that the static policy reserves (of kubeReserved and systemReserved,
	// rounded up) if ReservedSystemCPUs is empty.
	ReservedCPUs        int    `json:"reservedCPUs,omitempty"`
	MemoryManagerPolicy string `json:"memoryManagerPolicy,omitempty"`
	// Version is the kubelet's version, "v1.37.1"; empty if unknown.
	Version string `json:"version,omitempty"`
}

// Scopes of the Topology Manager (pkg/kubelet/cm/topologymanager/scope.go).
const (
	scopeContainer = "container"
	scopePod       = "pod"
)

// NewKubelet returns the settings of a kubelet's configuration. CPUs that are reserved only by number are
// counted like in the kubelet (NewManager in pkg/kubelet/cm/cpumanager/cpu_manager.go).
func NewKubelet(s configuration.Settings) (k Kubelet, err error) {
	k = Kubelet{
		TopologyManagerPolicy: s.Policy, TopologyManagerScope: s.Scope,
		TopologyManagerPolicyOptions: s.PolicyOptions,
		CPUManagerPolicy:             s.CPUPolicy, CPUManagerPolicyOptions: s.CPUOptions,
		ReservedSystemCPUs: s.ReservedCPUs, MemoryManagerPolicy: s.MemoryPolicy,
	}
	if k.CPUManagerPolicy == "static" && k.ReservedSystemCPUs == "" {
		k.ReservedCPUs, err = s.ReservedAmount()
	}
	return k, err
}

// TopologyManager returns the Topology Manager of a kubelet on a machine. It returns an error if a setting is
// unknown or not understood, such as an option of a newer kubelet: then nothing can be predicted.
func (k Kubelet) TopologyManager(nodes []NUMANode) (m devicemanager.Kubelet, err error) {
	if k.TopologyManagerPolicy == "" {
		return m, errors.New("the policy of the kubelet's Topology Manager is not known")
	}
	m.Rule = Documented(nodes)
	if m.Rule.Policy, err = hints.ParsePolicy(k.TopologyManagerPolicy); err != nil {
		return m, err
	}
	switch k.TopologyManagerScope {
	case "", scopeContainer:
	case scopePod:
		m.ScopePod = true
	default:
		return m, fmt.Errorf("parse scope %q: want %s or %s", k.TopologyManagerScope, scopeContainer, scopePod)
	}
	return m, k.readOptions(&m.Rule, nodes)
}

// Documented returns the documented rule of a Topology Manager, by which devices are chosen, and nobody is
// refused, where the kubelet's own is unknown.
func Documented(nodes []NUMANode) hints.Rule {
	rule := hints.Rule{Policy: hints.Restricted}
	for _, n := range nodes {
		rule.Machine |= 1 << n.Number
	}
	return rule
}

// readOptions reads the options of the policy (policy_options.go of the Topology Manager).
func (k Kubelet) readOptions(rule *hints.Rule, nodes []NUMANode) error {
	for name, value := range k.TopologyManagerPolicyOptions {
		var err error
		switch name {
		case "prefer-closest-numa-nodes":
			var closest bool
			if closest, err = strconv.ParseBool(value); closest {
				rule.Distances = distances(nodes)
			}
		case "max-allowable-numa-nodes":
			rule.MaxNodes, err = strconv.Atoi(value)
		default:
			err = errors.New("it is not known")
		}
		if err != nil {
			return fmt.Errorf("read policy option %.64q: %w", name, err)
		}
	}
	return nil
}

// distances returns the distances between nodes by number.
func distances(nodes []NUMANode) [][]int {
	most := 0
	for _, n := range nodes {
		most = max(most, n.Number)
	}
	by := make([][]int, most+1)
	for _, a := range nodes {
		by[a.Number] = make([]int, most+1)
		for i, b := range nodes {
			if i < len(a.Distances) {
				by[a.Number][b.Number] = a.Distances[i]
			}
		}
	}
	return by
}
