// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"os"
	"sync"

	"google.golang.org/grpc"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is a plugin's part in the coordination of the node: always a client, and the server while the plugin
// holds the lock.
type Node struct {
	config     Config
	machine    *machine
	conn       *grpc.ClientConn
	membership *membership
	election   *election
	handouts   map[device.Kind]handoutReader
	withheld   *withholder
}

// New prepares the run directory, reads the PCI tree and creates a client; New starts nothing. The error for
// an unusable run directory contains advice.
func New(config Config) (*Node, error) {
	if err := PrepareRunDir(config.RunDir); err != nil {
		return nil, err
	}
	if config.Tree == nil {
		config.Tree = newTreeReader(config.SysRoot)
	}
	machine := &machine{source: config.Tree, file: config.Topology}
	if _, err := machine.read(); err != nil {
		return nil, err
	}
	if config.Intent.Choice == nil {
		config.Intent.Choice = intent.Default
	}
	if config.Socket == nil {
		config.Socket = unixSocket{config.RunDir}
	}
	config.claims = newClaimWatch(config.KubeletDir, config.CDIDir, config.Log)
	n := &Node{config: config, machine: machine, handouts: map[device.Kind]handoutReader{}}
	for _, kind := range []device.Kind{device.GPU, device.VF} {
		n.handouts[kind] = newHandoutReader(config.Log, config.RunDir, kind)
	}
	conn, err := dialSocket(config.Socket, config.RunDir)
	if err != nil {
		return nil, err
	}
	n.conn, n.membership = conn, newMembership(api.NewCoordinationClient(conn), config.Log)
	n.election = &election{config: &n.config, machine: machine, lost: n.membership.lost}
	if !config.OverSocket {
		n.membership.own = &n.election.serving
	}
	n.election.sources, err = n.election.openSources()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	n.withheld = newWithholder(&n.config, n.election.sources.Pods)
	return n, nil
}

// Run takes part in the coordination until ctx is done: as a client, and as the server while no other plugin
// serves.
func (n *Node) Run(ctx context.Context) error {
	defer n.conn.Close()
	defer n.election.sources.Close()
	var parts sync.WaitGroup
	parts.Go(func() { n.election.run(ctx) })
	parts.Go(func() { n.membership.run(ctx) })
	parts.Go(func() { n.withheld.run(ctx) })
	if n.config.Unsound != nil {
		parts.Go(func() { n.election.tellUnsound(ctx) })
	}
	parts.Go(func() { n.config.claims.run(ctx) })
	parts.Wait()
	return nil
}

// Remark returns the reason for withholding all devices, "" for none.
func (n *Node) Remark() string { return n.config.claims.newest.Get().Why() }

// Member adds a resource. Member may be called at any time.
func (n *Node) Member(resource string, kind device.Kind) *Member {
	log := n.config.Log.With("resource", resource)
	announced := n.membership.announced.add(resource, kind)
	handouts := newHandouts(log, n.config.Disk, n.config.RunDir, kind, n.handouts[kind.Other()])
	return &Member{
		announced: announced, chooser: &chooser{announced, handouts, n.machine}, client: n.membership,
		withheld: n.withheld, config: &n.config, log: log,
		listed: &listed{
			resource: resource, config: &n.config, recorded: n.withheld.recorded, log: log,
			again: func() { n.withheld.raise(resource) },
		},
	}
}

// ReadTree reads the PCI tree and returns the tree of sysfs; later decisions use the tree. A plugin that
// scans this tree for devices avoids another read.
func (n *Node) ReadTree() (*topology.Tree, error) { return n.machine.read() }

// Role is the current role of a plugin in the coordination of its node.
type Role string

// Roles of a plugin.
const (
	Serves  Role = "server"  // holds the lock and answers for both plugins
	Joined  Role = "client"  // another plugin serves
	Foreign Role = "foreign" // another plugin serves with an incompatible protocol
	Apart   Role = "alone"   // no plugin serves
)

// Roles lists all roles.
var Roles = []Role{Serves, Joined, Foreign, Apart}

// Role returns the plugin's current role.
func (n *Node) Role() Role {
	switch {
	case n.election.serving.Load() != nil:
		return Serves
	case n.membership.foreign.Load():
		return Foreign
	case n.membership.joined.Load():
		return Joined
	default:
		return Apart
	}
}

// Resources returns the devices of both plugins while this plugin serves, otherwise nil. Resources may call
// the kubelet, for at most a second.
func (n *Node) Resources() []*api.Resource {
	if own := n.election.serving.Load(); own != nil {
		return own.coordinator.Resources()
	}
	return nil
}

// Enforcement returns the state of the enforcement of pods' annotations, by the last answers of the request
// sources; false while this plugin does not serve.
func (n *Node) Enforcement() (now intent.Enforcement, serves bool) {
	if n.election.serving.Load() == nil {
		return now, false
	}
	now, _ = n.election.sources.Enforcement()
	return now, true
}

// Alive returns an error if a part of this plugin hangs, so that a restart would help. Alive waits at most
// until ctx is done.
func (n *Node) Alive(ctx context.Context) error { return n.election.alive(ctx) }

// Hinting returns what decides about the NUMA hints of VFs, without the pools: the kubelet's settings, as far
// as known, and the GPUs as announced on this node since its boot, none before; and the PCI tree.
func (n *Node) Hinting() (h model.Hinting, tree *topology.Tree) {
	tree = n.machine.Newest()
	h = model.Hinting{Nodes: tree.NUMANodes(), CPUs: model.HintedNodes(os.DirFS(n.config.SysRoot), tree)}
	if settings, err := readKubelet(n.config.Kubelet); err == nil {
		h.Kubelet = settings
	}
	for _, r := range n.announcedGPUs() {
		one := model.Resource{Name: r.Name, Kind: model.GPU}
		for _, d := range r.Ordered() {
			one.Devices = append(one.Devices, model.Device{NUMA: d.NUMA, Healthy: d.Healthy})
		}
		if len(one.Devices) > 0 {
			h.GPUs = append(h.GPUs, one)
		}
	}
	return h, tree
}

// announcedGPUs returns the announced resources of GPUs: those of the coordinator, by its file while another
// plugin serves.
func (n *Node) announcedGPUs() []*device.Resource {
	set := device.Resources{}
	if own := n.election.serving.Load(); own != nil {
		announced, _ := own.coordinator.Announced()
		for _, r := range announced.Resources {
			set[r.Name] = r
		}
	} else if saved, err := admission.Saved(n.config.RunDir, n.config.Disk.Boot); err == nil {
		set = saved
	}
	return set.OfKind(device.GPU)
}
