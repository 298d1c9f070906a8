// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// Options configure a node.
type Options struct {
	NUMA   []NUMA // the machine's NUMA nodes, at least one
	Policy string // --topology-manager-policy; "restricted" when empty
	Scope  string // --topology-manager-scope; "container" when empty
	// PolicyOptions are --topology-manager-policy-options; the closest NUMA nodes are preferred when nil.
	PolicyOptions map[string]string
	// ReservedCPUs, --reserved-cpus, takes the static CPU policy; "" is the policy none.
	ReservedCPUs string
	CPUOptions   map[string]string // --cpu-manager-policy-options
	// ReservedMemory, --reserved-memory of every NUMA node in bytes, takes the static memory policy; 0 is the
	// policy None.
	ReservedMemory uint64

	PodsAPI bool // feature gate PodsAPI
	// Watcher runs the plugin watcher on the folder plugins_registry, and creates that folder. A real kubelet
	// always does, but plugins see only mounted folders.
	Watcher bool
}

// Node is a running node. Its methods may be called from several goroutines, but Restart and Stop want to be
// alone.
type Node struct {
	dir     string
	options Options
	pods    *pods

	admission  sync.Mutex // the kubelet handles added pods on a single goroutine
	topology   topologymanager.Manager
	devices    *devicemanager.ManagerImpl
	cpus       *cpus   // nil without
	memory     *memory // nil without
	allocation allocation.Manager
	endpoints  []func() // stop PodResources and, if enabled, the Pods API
	watcher    *watcher // nil without
}

// Start starts a node in a folder that replaces /var/lib/kubelet. It continues from the checkpoint of an
// earlier node in the folder. The path must be short: a unix socket address has room for 107 bytes.
func Start(dir string, options Options) (*Node, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	n := &Node{dir: dir, options: options.withDefaults(), pods: newPods()}
	if err := n.start(containermap.NewContainerMap()); err != nil {
		return nil, fmt.Errorf("start node in %s: %w", dir, err)
	}
	n.pods.ready.Store(true)
	return n, nil
}

// Stop ends the node like the end of the kubelet process: sockets close, pods stay.
func (n *Node) Stop() error {
	for _, stop := range n.endpoints {
		stop()
	}
	n.watcher.stop()
	if err := n.devices.Stop(klog.Background()); err != nil {
		return fmt.Errorf("stop device manager: %w", err)
	}
	return nil
}

// Restart ends the kubelet and starts it again while all containers except init containers run: plugins must
// register again, and pods are admitted again from the checkpoint. It returns the pods that the kubelet
// refuses: those whose init containers had devices, because no plugin has registered yet and these containers
// do not run.
func (n *Node) Restart() (refused []*v1.Pod, err error) {
	if err := n.Stop(); err != nil {
		return nil, err
	}
	n.pods.ready.Store(false)
	if err := n.start(n.pods.running()); err != nil {
		return nil, fmt.Errorf("restart node in %s: %w", n.dir, err)
	}
	for _, pod := range n.pods.GetActivePods() {
		switch err := n.admit(pod); {
		case err != nil && len(pod.Spec.InitContainers) > 0:
			refused = append(refused, pod)
		case err != nil:
			return nil, fmt.Errorf("restart node in %s: %w", n.dir, err)
		}
	}
	n.pods.ready.Store(true)
	return refused, nil
}

// start puts the managers together in the order of NewContainerManager in
// pkg/kubelet/cm/container_manager_linux.go.
func (n *Node) start(running containermap.ContainerMap) (err error) {
	machine := cadvisorInfo(n.options.NUMA)
	n.topology, err = newTopologyManager(machine.Topology, n.options)
	if err != nil {
		return fmt.Errorf("create topology manager: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "device-plugins"), 0o750); err != nil {
		return err
	}
	socket := filepath.Join(n.dir, "device-plugins", "kubelet.sock")
	n.devices, err = newDeviceManager(klog.Background(), socket, machine.Topology, n.topology)
	if err != nil {
		return fmt.Errorf("create device manager: %w", err)
	}
	n.topology.AddHintProvider(klog.Background(), n.devices)
	if n.options.ReservedCPUs != "" {
		if n.cpus, err = newCPUs(n.dir, machine, n.options, n.topology); err != nil {
			return fmt.Errorf("create CPU manager: %w", err)
		}
		n.topology.AddHintProvider(klog.Background(), n.cpus)
	}
	if n.options.ReservedMemory > 0 {
		if n.memory, err = newMemory(n.dir, machine, n.options.ReservedMemory, n.topology); err != nil {
			return fmt.Errorf("create memory manager: %w", err)
		}
		n.topology.AddHintProvider(klog.Background(), n.memory)
	}

	sources := config.NewSourcesReady(func(sets.Set[string]) bool { return n.pods.ready.Load() })
	n.allocation = newAllocation(n.pods, sources)
	n.allocation.AddPodAdmitHandlers(lifecycle.PodAdmitHandlers{n.topology})

	err = n.devices.Start(klog.Background(), n.pods.GetActivePods, sources, running, containerIDs(running))
	if err != nil {
		return fmt.Errorf("start device manager: %w", err)
	}
	n.endpoints = nil
	if n.options.PodsAPI {
		stop, err := n.servePodsAPI(sources)
		if err != nil {
			return err
		}
		n.endpoints = append(n.endpoints, stop)
	}
	if n.options.Watcher {
		n.watcher = startWatcher(n.dir, n.devices, sources)
	}
	stop, err := n.servePodResources()
	if err == nil {
		n.endpoints = append(n.endpoints, stop)
	}
	return err
}

func (o Options) withDefaults() Options {
	if o.Policy == "" {
		o.Policy = topologymanager.PolicyRestricted
	}
	if o.Scope == "" {
		o.Scope = topologymanager.ContainerTopologyScope
	}
	return o
}

// policyOptions returns --topology-manager-policy-options. By default the kubelet rejects more than eight
// NUMA nodes.
func (o Options) policyOptions() map[string]string {
	if o.PolicyOptions != nil {
		return o.PolicyOptions
	}
	return map[string]string{
		topologymanager.PreferClosestNUMANodes: "true",
		topologymanager.MaxAllowableNUMANodes:  fmt.Sprint(max(8, len(o.NUMA))),
	}
}

// Silence discards the log of the kubelet's code, which is global to a process. Call it first.
func Silence() { klog.SetLogger(logr.Discard()) }
