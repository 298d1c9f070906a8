package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
)

const fixKubelet = "tandem doctor --fix-kubelet, or in the kubelet's configuration: "

func (e *examination) topologyPolicy() {
	if !e.kubelet.read || e.kubelet.Policy == "restricted" {
		return
	}
	f := Finding{
		ID: "topology-policy", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerPolicy is %s.", e.kubelet.Policy),
		Evidence: []string{e.kubelet.says("topologyManagerPolicy", e.kubelet.Policy)},
		Fix:      []string{fixKubelet + "topologyManagerPolicy: restricted"},
	}
	switch e.kubelet.Policy {
	case "none":
		f.Severity = Error
		f.Why = "GPUs, VFs and CPUs of a container are not kept on one NUMA node, and a container is admitted " +
			"even where its GPUs and VFs cannot be near each other."
	case "best-effort":
		f.Why = "A container is admitted even where its GPUs and VFs have to come from different NUMA nodes; " +
			"then no pair is on one switch."
	case "single-numa-node":
		f.Why = "A container that needs the GPUs of more than one NUMA node is always refused."
	default:
		f.Severity, f.Why = Error, "The kubelet knows no such policy and does not start."
	}
	e.find(f)
}

func (e *examination) topologyScope() {
	if !e.kubelet.read || e.kubelet.Scope == "container" || e.kubelet.Policy == "none" {
		return
	}
	e.find(Finding{
		ID: "topology-scope", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerScope is %s.", e.kubelet.Scope),
		Evidence: []string{e.kubelet.says("topologyManagerScope", e.kubelet.Scope)},
		Why: "All containers of a pod have to fit the same smallest set of NUMA nodes together: pods with " +
			"sidecars that have CPUs or devices are refused more often, and no pair becomes nearer.",
		Fix: []string{fixKubelet + "topologyManagerScope: container"},
	})
}

// closestNodes: between two nodes there is only one distance.
func (e *examination) closestNodes() {
	const option = "prefer-closest-numa-nodes"
	nodes := len(e.Tree.NUMANodes())
	if !e.kubelet.read || e.kubelet.Policy == "none" || nodes <= 2 || e.kubelet.PolicyOptions[option] == "true" {
		return
	}
	e.find(Finding{
		ID: "closest-nodes", Severity: Warning,
		Summary: fmt.Sprintf("The kubelet does not prefer NUMA nodes that are close to each other, "+
			"and there are %d.", nodes),
		Evidence: []string{
			e.kubelet.says("topologyManagerPolicyOptions", fmt.Sprint(e.kubelet.PolicyOptions)),
			count(nodes, "NUMA node") + " in /sys/devices/system/node/online",
		},
		Why: "A container that needs two nodes gets those with the lowest numbers, which may be on two sockets.",
		Fix: []string{fixKubelet + "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}"},
	})
}

// manyNodes: see maxAllowableNUMANodes in pkg/kubelet/cm/topologymanager.
func (e *examination) manyNodes() {
	const most, option = hints.MaxNodes, "max-allowable-numa-nodes"
	nodes := len(e.Tree.NUMANodes())
	allowed, _ := strconv.Atoi(e.kubelet.PolicyOptions[option]) // none is 0
	if !e.kubelet.read || e.kubelet.Policy == "none" || nodes <= max(most, allowed) {
		return
	}
	e.find(Finding{
		ID: "many-numa-nodes", Severity: Error,
		Summary: fmt.Sprintf("The machine has %d NUMA nodes, and the kubelet allows %d.",
			nodes, max(most, allowed)),
		Evidence: []string{e.kubelet.says("topologyManagerPolicyOptions", fmt.Sprint(e.kubelet.PolicyOptions))},
		Why:      "With a Topology Manager policy the kubelet does not start.",
		Fix: []string{
			"fewer nodes: NPS or sub-NUMA clustering in the firmware",
			fmt.Sprintf("or, from Kubernetes 1.31 on, topologyManagerPolicyOptions: {%s: \"%d\"}; "+
				"admission becomes slower with every node", option, nodes),
		},
	})
}

func (e *examination) memoryManager() {
	if e.kubelet.MemoryPolicy == "Static" && len(e.kubelet.ReservedMemory) == 0 {
		e.find(Finding{
			ID: "reserved-memory", Severity: Error,
			Summary: "The kubelet's memory manager is static, and no memory is reserved.",
			Evidence: []string{
				e.kubelet.says("memoryManagerPolicy", "Static"), e.kubelet.says("reservedMemory", "none"),
			},
			Why: "The kubelet does not start: the static policy wants as much reserved memory as kubeReserved, " +
				"systemReserved and the eviction limit together.",
			Fix: []string{"reservedMemory: [{numaNode: 0, limits: {memory: SUM}}]"},
		})
	}
	e.staleState("memory_manager_state", "memory-state", e.kubelet.MemoryPolicy)
}

func (e *examination) cpuManager() {
	if !e.kubelet.read {
		return
	}
	if e.kubelet.CPUPolicy != "static" {
		e.find(Finding{
			ID: "cpu-manager", Severity: Warning,
			Summary:  fmt.Sprintf("The kubelet's cpuManagerPolicy is %s.", e.kubelet.CPUPolicy),
			Evidence: []string{e.kubelet.says("cpuManagerPolicy", e.kubelet.CPUPolicy)},
			Why:      "The processes of a container run on CPUs of any socket, away from its GPUs and VFs.",
			Fix:      []string{fixKubelet + "cpuManagerPolicy: static, with reservedSystemCPUs"},
		})
		return
	}
	reserved, err := e.reserved()
	if err != nil || len(reserved) == 0 {
		e.find(Finding{
			ID: "reserved-cpus", Severity: Error,
			Summary: "The kubelet's CPU manager is static, and no CPU is reserved for the system.",
			Evidence: []string{
				e.kubelet.says("reservedSystemCPUs", strconv.Quote(e.kubelet.ReservedCPUs)),
				e.kubelet.says("kubeReserved", fmt.Sprint(e.kubelet.KubeReserved)),
			},
			Why: "The kubelet does not start: its static policy wants reservedSystemCPUs, " +
				"or CPUs in kubeReserved or systemReserved.",
			Fix: []string{fixKubelet + "reservedSystemCPUs: \"" + e.suggestedCPUs() + "\""},
		})
		return
	}
	e.reservedPlaces(reserved)
}

// reserved are the CPUs that no container gets: those that are named or, of an amount, the lowest, which is
// where the static policy mostly takes them (takeByTopology in pkg/kubelet/cm/cpumanager/policy_static.go).
func (e *examination) reserved() (topology.CPUSet, error) {
	if e.kubelet.ReservedCPUs != "" {
		return topology.ParseCPUSet(e.kubelet.ReservedCPUs)
	}
	amount := cores(e.kubelet.KubeReserved["cpu"]) + cores(e.kubelet.SystemReserved["cpu"])
	set := topology.CPUSet{}
	all := allCPUs(topology.CPUs(e.Sys))
	for n := 0; len(set) < amount && len(set) < len(all); n++ {
		if all[n] {
			set[n] = true
		}
	}
	return set, nil
}

// reservedPlaces: CPUs that are not there, and NUMA nodes of which nothing is left.
func (e *examination) reservedPlaces(reserved topology.CPUSet) {
	nodes := topology.CPUs(e.Sys)
	if len(nodes) == 0 {
		return
	}
	if missing := reserved.Without(allCPUs(nodes)); len(missing) > 0 {
		e.find(Finding{
			ID: "reserved-cpus", Severity: Error,
			Summary: fmt.Sprintf("reservedSystemCPUs names CPUs that the machine does not have: %s.", missing),
			Evidence: []string{
				e.kubelet.says("reservedSystemCPUs", e.kubelet.ReservedCPUs),
				"CPUs of this machine: " + allCPUs(nodes).String(),
			},
			Why: "The kubelet does not start.",
			Fix: []string{"reservedSystemCPUs: \"" + e.suggestedCPUs() + "\""},
		})
	}
	for number, set := range nodes {
		if len(set) > 0 && len(set.Without(reserved)) == 0 {
			e.find(Finding{
				ID: "reserved-cpus", Severity: Error,
				Summary: fmt.Sprintf("All CPUs of NUMA node %d are reserved for the system.", number),
				Evidence: []string{
					e.kubelet.says("reservedSystemCPUs", e.kubelet.ReservedCPUs),
					fmt.Sprintf("node %d has the CPUs %s", number, set),
				},
				Why: "No guaranteed pod can have its CPUs where the GPUs and VFs of that node are: those are lost " +
					"to such pods.",
				Fix: []string{"spread reservedSystemCPUs over all nodes: \"" + e.suggestedCPUs() + "\""},
			})
		}
	}
}

// suggestedCPUs is the first CPU of every NUMA node.
func (e *examination) suggestedCPUs() string {
	set := topology.CPUSet{}
	for _, list := range topology.CPUs(e.Sys) {
		for n := 0; len(list) > 0; n++ {
			if list[n] {
				set[n] = true
				break
			}
		}
	}
	if len(set) == 0 {
		return "0"
	}
	return set.String()
}

// restarted tells how a kubelet takes over a new configuration.
func restarted(commands ...string) string {
	return strings.Join(append(append([]string{"systemctl stop kubelet"}, commands...),
		"systemctl start kubelet"), " && ")
}
