package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Node is a published object made ready to be asked. It never changes and may be shared.
type Node struct {
	*shape
	name     string
	rule     hints.Rule
	scope    string
	healthy  set
	held     []pod
	object   []v1alpha1.Held
	managers Managers
}

// pod is what one pod holds.
type pod struct {
	uid        types.UID
	containers []given
	all        set
}

// given is what one container got.
type given struct {
	name    string
	devices set
	nodes   hints.Mask
}

// Scopes of the Topology Manager (pkg/kubelet/cm/topologymanager/scope.go).
const (
	scopeContainer = "container"
	scopePod       = "pod"
)

// New reads a published object. Where managers are nil, CPUs and memory are not looked at. It is an error
// where the object contradicts itself; the error names what.
func New(topology *v1alpha1.NodeTopology, managers Managers) (*Node, error) {
	return (*Shapes)(nil).New(topology, managers)
}

// New is [New], but nodes with the same devices at the same places share what is known of these.
func (s *Shapes) New(topology *v1alpha1.NodeTopology, managers Managers) (*Node, error) {
	n, err := s.read(topology, managers)
	if err != nil {
		return nil, fmt.Errorf("read NodeTopology %s: %w", topology.Name, err)
	}
	return n, nil
}

func (s *Shapes) read(topology *v1alpha1.NodeTopology, managers Managers) (*Node, error) {
	spec := &topology.Spec
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	found, err := s.shape(spec)
	if err != nil {
		return nil, err
	}
	n := &Node{shape: found, name: topology.Name, object: spec.Held, managers: managers, healthy: found.none()}
	for i := range found.resources {
		r := &found.resources[i]
		unhealthy, err := spec.Resources[i].Unhealthy.Ranges(r.count)
		if err != nil {
			return nil, fmt.Errorf("read unhealthy devices of %s: %w", r.name, err)
		}
		n.healthy.join(r.all)
		for _, u := range unhealthy {
			n.healthy.drop(r.from+u.First, r.from+u.Last)
		}
	}
	if n.rule, n.scope, err = newRule(spec); err != nil {
		return nil, err
	}
	for _, h := range spec.Held {
		p, err := n.readHeld(h)
		if err != nil {
			return nil, fmt.Errorf("read what pod %s holds: %w", h.UID, err)
		}
		n.held = append(n.held, p)
	}
	return n, nil
}

// readHeld takes over what a pod holds. Resources that the node has no longer are left out.
func (n *Node) readHeld(h v1alpha1.Held) (pod, error) {
	p := pod{uid: types.UID(h.UID), all: n.none()}
	for _, c := range h.Containers {
		g := given{name: c.Name, devices: n.none()}
		for name, devices := range c.Devices {
			i, known := n.index[name]
			if !known {
				continue
			}
			r := &n.resources[i]
			ranges, err := devices.Ranges(r.count)
			if err != nil {
				return pod{}, fmt.Errorf("read %s of container %s: %w", name, c.Name, err)
			}
			for _, have := range ranges {
				g.devices.fill(r.from+have.First, r.from+have.Last)
			}
		}
		p.all.join(g.devices)
		p.containers = append(p.containers, g)
	}
	return p, nil
}

// newRule reads the kubelet's configuration. A policy that is not known refuses nothing.
func newRule(spec *v1alpha1.Spec) (rule hints.Rule, scope string, err error) {
	k := &spec.Kubelet
	if k.TopologyManagerPolicy == "" {
		return hints.Rule{Policy: hints.None}, scopeContainer, nil
	}
	if rule.Policy, err = hints.ParsePolicy(k.TopologyManagerPolicy); err != nil {
		return rule, "", err
	}
	if scope = k.TopologyManagerScope; scope == "" {
		scope = scopeContainer
	}
	if scope != scopeContainer && scope != scopePod {
		return rule, "", fmt.Errorf("parse scope %q: want %s or %s", scope, scopeContainer, scopePod)
	}
	most := 0
	for _, node := range spec.NUMANodes {
		if node.Number < 0 || node.Number > 63 {
			return rule, "", fmt.Errorf("NUMA node %d: want a number from 0 to 63", node.Number)
		}
		rule.Machine |= 1 << node.Number
		most = max(most, node.Number)
	}
	return rule, scope, readOptions(&rule, spec, most)
}

// readOptions reads the options of the policy (policy_options.go of the Topology Manager).
func readOptions(rule *hints.Rule, spec *v1alpha1.Spec, most int) error {
	for name, value := range spec.Kubelet.TopologyManagerPolicyOptions {
		var err error
		switch name {
		case "prefer-closest-numa-nodes":
			var closest bool
			if closest, err = strconv.ParseBool(value); closest {
				rule.Distances = distances(spec.NUMANodes, most)
			}
		case "max-allowable-numa-nodes":
			rule.MaxNodes, err = strconv.Atoi(value)
		}
		if err != nil {
			return fmt.Errorf("parse policy option %s: %w", name, err)
		}
	}
	return nil
}

// distances are those between nodes by their numbers.
func distances(nodes []v1alpha1.NUMANode, most int) [][]int {
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

// Resources are the names of the published resources, ascending.
func (n *Node) Resources() []string { return slices.Sorted(maps.Keys(n.index)) }
