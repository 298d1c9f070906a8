// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeTopology is what one node publishes. It has the name of its node.
type NodeTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec Spec `json:"spec"`
}

// NodeTopologyList is what the API server answers to a list.
type NodeTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []NodeTopology `json:"items"`
}

// Spec is everything that decides what the kubelet admits, and which pairs a container gets.
type Spec struct {
	Kubelet   Kubelet    `json:"kubelet"`
	Resources []Resource `json:"resources"`           // by name, ascending
	Switches  []Switch   `json:"switches,omitempty"`  // by path, ascending
	NUMANodes []NUMANode `json:"numaNodes,omitempty"` // of the machine, by number, ascending
	Links     []Link     `json:"links,omitempty"`     // between GPUs; none where all are linked alike
	Held      []Held     `json:"held,omitempty"`      // by UID, ascending
	// MemoryReserved are the NUMA nodes of which containers have memory, by number, ascending.
	MemoryReserved []MemoryReserved `json:"memoryReserved,omitempty"`
	Summary        Summary          `json:"summary"`
}

// Kubelet is how the kubelet of the node admits pods: fields of its configuration
// (k8s.io/kubelet/config/v1beta1), under their own names.
type Kubelet struct {
	// TopologyManagerPolicy is empty where it could not be read: then nobody can tell what will be refused.
	TopologyManagerPolicy        string            `json:"topologyManagerPolicy,omitempty"`
	TopologyManagerScope         string            `json:"topologyManagerScope,omitempty"`
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
	CPUManagerPolicy             string            `json:"cpuManagerPolicy,omitempty"`
	CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	ReservedSystemCPUs           Set               `json:"reservedSystemCPUs,omitempty"`
	// ReservedCPUs is how many CPUs the static policy keeps back (of kubeReserved and systemReserved, rounded
	// up) where ReservedSystemCPUs names none.
	ReservedCPUs        int    `json:"reservedCPUs,omitempty"`
	MemoryManagerPolicy string `json:"memoryManagerPolicy,omitempty"`
	// Version is the kubelet's, "v1.37.1"; empty where it is not known.
	Version string `json:"version,omitempty"`
}

// Set is a set of numbers as the kernel prints lists of CPUs: "0-3,8". Empty is none.
type Set string

// Resource is one extended resource of the node. Its devices are numbered from 0, in the order of their PCI
// addresses, those of one address in the order of their IDs.
type Resource struct {
	Name      string `json:"name"` // "amd.com/gpu"
	Kind      Kind   `json:"kind"`
	Devices   int    `json:"devices"`             // how many there are, unhealthy ones too
	Unhealthy Set    `json:"unhealthy,omitempty"` // of these
	// Hints are the devices by the NUMA node that the kubelet was told, the number of the node being the key;
	// nothing for a resource without hints (excludeTopology).
	Hints map[string]Set `json:"hints,omitempty"`
	// Functions are the devices that are on one physical function: VFs of one PF, partitions of one GPU. Each
	// device is on one of them. None where each device is one.
	Functions []Set `json:"functions,omitempty"`
	// Addresses are those of the physical functions: of the sets of Functions in their order, where there are
	// none of the devices. They decide between places that are as good as each other.
	Addresses []string `json:"addresses,omitempty"`
	// Degraded are the physical functions, as indices in Addresses, whose PCIe link is slower or narrower than
	// it could be.
	Degraded Set `json:"degraded,omitempty"`
}

// Kind is which half of a pair a device can be.
type Kind string

// The kinds.
const (
	GPU Kind = "gpu"
	VF  Kind = "vf"
)

// Switch is what shares a PCIe switch: the topmost bridge that two cards share. Devices that share none are
// in an entry of their root complex with Alone set, and make no same-switch pairs.
type Switch struct {
	Name string `json:"name"` // the bridge, "0000:80:01.1", or the root complex, "pci0000:80"
	// Path are the root complex and the bridges that all devices of the switch share with other cards, from the
	// top down, by address: "pci0000:80/0000:80:01.1/0000:81:00.0".
	Path    string         `json:"path"`
	Alone   bool           `json:"alone,omitempty"`
	NUMA    *int           `json:"numa,omitempty"` // the machine's NUMA node; absent where it is not known
	Devices map[string]Set `json:"devices"`        // by resource
	// Redirected are how many bridges of Path, from the top, lie above a port that sends what the devices send
	// each other on to the host bridge (ACS).
	Redirected int `json:"redirected,omitempty"`
	// Below are those of the devices that differ from this: they share further bridges, or their traffic is
	// redirected otherwise.
	Below []Below `json:"below,omitempty"`
}

// Below are devices of a switch that are PIX to each other, and PXB to others of the switch.
type Below struct {
	Path       string         `json:"path,omitempty"`       // the bridges that they share below the switch
	Redirected int            `json:"redirected,omitempty"` // how many bridges of both paths, as for the switch
	Devices    map[string]Set `json:"devices"`              // by resource; the switch lists them too
}

// NUMANode is a NUMA node of the machine.
type NUMANode struct {
	Number int `json:"number"`
	// Distances are those to all nodes of the list, in its order (SLIT: 10 is the node itself).
	Distances []int `json:"distances,omitempty"`
	CPUs      Set   `json:"cpus,omitempty"` // where the CPU manager's policy is static
	// Cores are the CPUs of each core, where cores have several; in the order of their lowest CPUs.
	Cores []Set `json:"cores,omitempty"`
	// Socket is the number of the socket of the node's CPUs, where that is not the node's own.
	Socket *int `json:"socket,omitempty"`
	// Memory is what the memory manager's state says of the node, where its policy is Static: the kinds are
	// "memory" and "hugepages-2Mi".
	Memory map[string]Memory `json:"memory,omitempty"`
}

// Memory is one kind of memory of a NUMA node in bytes (memory_manager_state of the kubelet).
type Memory struct {
	Total          uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
}

// Link is a direct link between two GPUs.
type Link struct {
	A     GPURef `json:"a"`
	B     GPURef `json:"b"`
	Type  string `json:"type"` // XGMI or NVLINK
	Hops  int    `json:"hops"`
	Count int    `json:"count"`
}

// GPURef names a GPU: a resource and a device of it, "amd.com/gpu/3".
type GPURef string

// Held is what the kubelet has given to a pod. It stays until the kubelet needs the devices: whether the pod
// still runs is for the reader to see.
type Held struct {
	UID        string      `json:"uid"`
	Containers []Container `json:"containers"` // in the order of their names
}

// Container is what one container of a pod holds.
type Container struct {
	Name    string         `json:"name"`
	Devices map[string]Set `json:"devices,omitempty"` // by resource
	CPUs    Set            `json:"cpus,omitempty"`    // its own (cpu_manager_state)
	Memory  []MemoryBlock  `json:"memory,omitempty"`  // memory_manager_state
}

// MemoryBlock is memory that a container has from some NUMA nodes.
type MemoryBlock struct {
	NUMANodes Set    `json:"numaNodes"`
	Type      string `json:"type"`
	Size      uint64 `json:"size"` // bytes
}

// MemoryReserved is what the memory manager has given away of a NUMA node. What pods hold does not tell that
// where memory is of several nodes: how much is of which hangs on what was free then.
type MemoryReserved struct {
	NUMANode int `json:"numaNode"`
	// Group are the nodes of the memory that was given last, this one among them (cells).
	Group  Set               `json:"group"`
	Memory map[string]uint64 `json:"memory,omitempty"` // bytes by kind
}

// Summary is for people, and for the columns of kubectl get. It is counted from the rest.
type Summary struct {
	Switches  int    `json:"switches"`  // with GPUs and VFs
	GPUs      string `json:"gpus"`      // free of all that are healthy, "3/8"
	VFs       string `json:"vfs"`       // likewise
	FreePairs int    `json:"freePairs"` // same-switch pairs that free devices make
}
