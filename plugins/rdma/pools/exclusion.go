// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/tandem-k8s/tandem/topology"
)

// Exclusion is a value of excludeTopology: whether the NUMA nodes of a pool are withheld from the kubelet.
// The stock plugin knows true and false.
type Exclusion string

// The values of excludeTopology. Without the key the value is Never.
const (
	Never  Exclusion = ""     // false
	Always Exclusion = "true" // true
	Auto   Exclusion = "auto" // on a machine with more than mostHinted NUMA nodes
)

// mostHinted is the number of NUMA nodes up to which a pool with the value Auto has hints. The kubelet's
// Topology Manager tries every combination of the hints of all resources of a container, and a resource has
// up to 2^n-1 hints on n NUMA nodes. Kubelet 1.37.1 takes, with hints of
//
//	              two resources  three   four
//	4 NUMA nodes          66 µs  1.4 ms  14 ms
//	8 NUMA nodes          19 ms  6.4 s   27 min
//
// (kubernetes#137700 reports 258 s for four on eight nodes). GPUs, VFs and the static CPU manager are three
// resources, and the static memory manager is the fourth. On four nodes a pool costs the factor 15: even with
// a second pool, the fifth resource, the time is 0.3 s. On eight nodes a pool costs the factor 255. Five
// resources take 11 s on five nodes, and four take 6 s on six nodes.
const mostHinted = 4

// UnmarshalJSON reads true, false or "auto"; null changes nothing, as for every key.
func (e *Exclusion) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "null":
	case "false":
		*e = Never
	case "true":
		*e = Always
	case `"auto"`:
		*e = Auto
	default:
		return &json.UnmarshalTypeError{Value: kindOf(text), Type: reflect.TypeFor[Exclusion]()}
	}
	return nil
}

// kindOf names a JSON value as encoding/json does; a string is the value itself.
func kindOf(text []byte) string {
	switch text[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return string(text)
	default:
		return "number"
	}
}

// on reports whether the value withholds the NUMA nodes on a machine.
func (e Exclusion) on(m *machine) bool { return e == Always || e == Auto && m.numaNodes() > mostHinted }

// decision explains the outcome of Auto on a machine; "" for other values.
func (e Exclusion) decision(m *machine) string {
	if e != Auto {
		return ""
	}
	hints, limit := "NUMA hints", "up to"
	if e.on(m) {
		hints, limit = "no NUMA hints", "more than"
	}
	return fmt.Sprintf("excludeTopology auto: %s, because there are %s %d NUMA nodes: %d",
		hints, limit, mostHinted, m.numaNodes())
}

// numaNodes returns the number of NUMA nodes over which hints range.
func (m *machine) numaNodes() int {
	if m.nodes == 0 {
		m.nodes = len(HintedNodes(m.sys, m.tree))
	}
	return m.nodes
}

// HintedNodes returns the numbers of the NUMA nodes over which hints of CPUs and devices range, ascending:
// those with CPUs. The others, for example the memory of GPUs on Grace, have neither CPUs nor devices.
// Without lists of CPUs, all nodes count.
func HintedNodes(sys fs.FS, tree *topology.Tree) []int {
	if nodes := topology.NodesWithCPUs(topology.CPUs(sys)); len(nodes) > 0 {
		return nodes
	}
	return tree.NUMANodes()
}
