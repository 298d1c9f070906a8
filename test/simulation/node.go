// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is a node with the model of a kubelet. Its methods must be called by one goroutine, in a bubble of
// package synctest.
type Node struct {
	options   Options
	dir       string
	log       *slog.Logger
	hardware  *hardware.Machine
	network   network
	endpoints endpoints
	kubelet   *model.Kubelet
	records   *records
	processes []*process
	dying     []*process   // killed, and not yet ended
	alone     atomic.Int64 // calls that a plugin answered without the coordinator
	board     board
	story     seeds.Story
	sent      map[string][]device.Device // the devices of the kubelet's last update
	updates   int                        // of the kubelet's lists
	dev       devices
	vfName    string // the resource of the VFs
	boots     int
}

// observe counts the calls that a plugin answered without the coordinator.
func (n *Node) observe(event any) {
	if _, isAlone := event.(admission.Call); isAlone {
		n.alone.Add(1)
	}
}

// Plugins of the two processes of a node.
const (
	gpuProcess  = "tandem-gpu"
	rdmaProcess = "tandem-rdma"
)

// newNode makes a node with its kubelet, in an empty directory, and starts no process.
func newNode(dir string, seed uint64, options Options, log *slog.Logger) (*Node, error) {
	machine, err := hardware.New(options.Machine, options.VFs)
	if err != nil {
		return nil, err
	}
	n := &Node{
		options: options, dir: dir, log: log, hardware: machine, sent: map[string][]device.Device{},
		endpoints: endpoints{all: map[string][]*endpoint{}},
		board:     board{watchers: map[chan<- publish.Change]bool{}}, vfName: model.VFs,
	}
	if n.kubelet, err = model.New(n.kubeletDir(), map[string][]device.Device{}, seed); err != nil {
		return nil, err
	}
	policy, _ := options.manager()
	n.kubelet.Topology = topologymanager.Manager{Policy: policy, Nodes: machine.Present().NUMANodes()}
	n.kubelet.ScopePod, n.kubelet.Failed = options.ScopePod, map[string][]device.Device{}
	n.records = &records{
		kubelet: n.kubelet, shows: options.Source == intent.Kubelet, absent: map[string]bool{},
		late: map[string]time.Duration{}, claims: map[kubelet.Pod]string{},
	}
	return n, n.writeFiles()
}

// writeFiles writes the configurations of the kubelet and of the VFs.
func (n *Node) writeFiles() error {
	pools := fmt.Sprintf(`{"resourceList": [{"resourceName": %q, "resourcePrefix": "nvidia.com",
		"excludeTopology": %s, "selectors": {"isRdma": true}, "tandem": {"pairs": %t}}]}`,
		path.Base(n.vfName), n.options.topology(), !n.options.NoPairsFiles)
	policy, scope := n.options.manager()
	for name, content := range map[string]string{
		n.kubeletFiles().Config: fmt.Sprintf(`{"apiVersion": "kubelet.config.k8s.io/v1beta1",
			"kind": "KubeletConfiguration", "topologyManagerPolicy": %q, "topologyManagerScope": %q}`, policy, scope),
		n.poolsFile(): pools,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write a configuration: %w", err)
		}
	}
	return nil
}

func (n *Node) runDir() string     { return filepath.Join(n.dir, "run") }
func (n *Node) devinfoDir() string { return filepath.Join(n.dir, "devinfo") }
func (n *Node) kubeletDir() string { return filepath.Join(n.dir, "kubelet") }

// kubeletFiles returns the kubelet's configuration. The folder of drop-ins is empty, but known: without the
// folder the coordinator would not believe a policy other than restricted.
func (n *Node) kubeletFiles() kubelet.ConfigFiles {
	dir := n.kubeletDir()
	return kubelet.ConfigFiles{
		Config: filepath.Join(dir, kubelet.ConfigFile), Dir: filepath.Join(dir, "drop-ins"),
	}
}

func (n *Node) poolsFile() string { return filepath.Join(n.dir, "pools.json") }

// names lists the processes of the node.
func (n *Node) names() []string {
	if n.options.OneProcess {
		return []string{gpuProcess}
	}
	return []string{gpuProcess, rdmaProcess}
}

// begin starts a process.
func (n *Node) begin(name string) error {
	resources := []string{model.GPUs, n.vfName}
	if name == rdmaProcess {
		resources = resources[1:]
	} else if !n.options.OneProcess {
		resources = resources[:1]
	}
	p, err := n.start(name, resources)
	if err == nil {
		n.processes = append(n.processes, p)
	}
	return err
}

// finish ends a process in order.
func (n *Node) finish(p *process) error {
	p.cancel()
	n.processes = slices.DeleteFunc(n.processes, func(o *process) bool { return o == p })
	n.dying = append(n.dying, p)
	return n.bury()
}

// process returns a living process of a name, nil for none.
func (n *Node) process(name string) *process {
	i := slices.IndexFunc(n.processes, func(p *process) bool { return p.name == name && !p.killed.Load() })
	if i < 0 {
		return nil
	}
	return n.processes[i]
}

// server returns the process with the coordination server, nil for none.
func (n *Node) server() *process {
	i := slices.IndexFunc(n.processes, func(p *process) bool { return !p.killed.Load() && p.serves() })
	if i < 0 {
		return nil
	}
	return n.processes[i]
}

// burial is the time in which an ended process has left.
const burial = 300 * time.Millisecond

// bury waits for the end of processes, always for the same time.
func (n *Node) bury() error {
	n.processes = slices.DeleteFunc(n.processes, func(p *process) bool {
		if p.killed.Load() {
			n.dying = append(n.dying, p)
		}
		return p.killed.Load()
	})
	if len(n.dying) == 0 {
		return nil
	}
	seeds.Sleep(burial)
	for _, p := range n.dying {
		if err := <-p.done; err != nil {
			return fmt.Errorf("end %s: %w", p.name, err)
		}
	}
	n.dying = nil
	return nil
}

// stop ends all processes in order.
func (n *Node) stop() error {
	for len(n.processes) > 0 {
		if err := n.finish(n.processes[0]); err != nil {
			return err
		}
	}
	return nil
}

// sync waits until all processes are idle, and applies the plugins' lists in the kubelet.
func (n *Node) sync() error {
	synctest.Wait()
	for _, resource := range []string{model.GPUs, model.VFs} {
		devices, err := n.endpoints.devices(resource)
		if err != nil {
			return err
		}
		if slices.Equal(devices, n.sent[resource]) {
			continue
		}
		n.sent[resource] = devices
		n.updates++
		isHealthy := func(d device.Device) bool { return d.Healthy }
		healthy := slices.DeleteFunc(slices.Clone(devices), func(d device.Device) bool { return !d.Healthy })
		n.kubelet.Failed[resource] = slices.DeleteFunc(slices.Clone(devices), isHealthy)
		n.story.Add(fmt.Sprintf("%d %s are healthy", len(healthy), resource))
		if err := n.kubelet.Update(resource, healthy); err != nil {
			return err
		}
	}
	return nil
}

// isStale reports whether the kubelet lists a healthy device that the machine no longer has.
func (n *Node) isStale() bool {
	var listed []topology.Address
	for _, devices := range n.kubelet.Devices {
		for _, d := range devices {
			listed = append(listed, d.Address)
		}
	}
	return n.hardware.Lacks(listed)
}

// keep stores the answer of a plugin for the checkpoint.
func keep(c *model.Container, resource string, answer proto.Message) error {
	encoded, err := proto.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode an Allocate answer: %w", err)
	}
	if c.Responses == nil {
		c.Responses = map[string][]byte{}
	}
	c.Responses[resource] = encoded
	return nil
}
