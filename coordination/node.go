// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Config configures a Node.
type Config struct {
	RunDir     string     // directory of the lock and the socket, common to both plugins; see RunDir
	SysRoot    string     // root of sysfs (/sys)
	KubeletDir string     // the kubelet's directory (/var/lib/kubelet)
	Topology   *nccl.File // overrides the locations of devices in sysfs; may be nil
	Intent     Intent
	Withheld   Withheld                   // nil for nothing
	Observer   admission.DecisionObserver // nil for none
	Publisher  Publisher                  // nil for none
	// Rejected is told of the pods that the kubelet's Topology Manager has refused a short time ago, and that
	// ask for a resource of the plugins, again and again while this one serves. It returns at once; nil for
	// nobody.
	Rejected func([]intent.Rejected)
	Log      *slog.Logger
}

// Intent configures the sources of pod requests and the policy for annotations.
type Intent struct {
	Sources  intent.Choice    // nil means intent.Default
	Kubelet  kubelet.Endpoint // the kubelet's HTTPS server, for intent.Kubelet
	NodeName string           // for intent.APIServer
	Policy   intent.Policy    // annotations that pods may use
}

// Node is a plugin's part in the coordination of its node: always a client, and the server while it holds the
// lock.
type Node struct {
	config   Config
	machine  *machine
	sources  *intent.Sources
	conn     *grpc.ClientConn
	client   api.CoordinationClient
	lost     chan struct{}                           // signals that the connection to the server broke
	handouts map[device.Kind]func() (handout, error) // of both plugins

	returned chan *api.Announcement // returned Allocates, for the server

	foreign atomic.Bool // the server has an incompatible protocol and is not called
	joined  atomic.Bool
	serving atomic.Pointer[server]    // nil while another plugin serves
	beat    atomic.Pointer[time.Time] // time of the last round of the election

	mu      sync.Mutex
	members []*Member
	changed chan struct{} // closed and replaced after every announcement
}

// New prepares the run directory, reads the PCI tree and creates a client; it starts nothing. It returns an
// error with advice if the run directory is not usable.
func New(config Config) (*Node, error) {
	if err := checkRunDir(config.RunDir); err != nil {
		return nil, err
	}
	machine := &machine{root: config.SysRoot, file: config.Topology}
	if _, err := machine.read(); err != nil {
		return nil, err
	}
	if config.Intent.Sources == nil {
		config.Intent.Sources = intent.Default
	}
	n := &Node{
		config:   config,
		machine:  machine,
		lost:     make(chan struct{}, 1),
		returned: make(chan *api.Announcement, maxCalls),
		handouts: readHandouts(config.Log, config.RunDir),
		changed:  make(chan struct{}),
	}
	sources, err := intent.Open(intent.Config{
		Choice:     config.Intent.Sources,
		KubeletDir: config.KubeletDir,
		Kubelet:    config.Intent.Kubelet,
		Node:       config.Intent.NodeName,
		Policy:     config.Intent.Policy,
		Rejected:   n.rejected,
		Log:        config.Log,
	})
	if err != nil {
		return nil, err
	}
	conn, err := dial(config.RunDir)
	if err != nil {
		return nil, errors.Join(err, sources.Close())
	}
	n.sources, n.conn, n.client = sources, conn, api.NewCoordinationClient(conn)
	return n, nil
}

// rejected hands on those pods that ask for a resource of the plugins.
func (n *Node) rejected(pods []intent.Rejected) {
	own := n.serving.Load()
	if own == nil || n.config.Rejected == nil {
		return
	}
	announced, _ := own.coordinator.Announced()
	names := map[string]bool{}
	for _, r := range announced.Resources {
		names[r.Name] = true
	}
	n.config.Rejected(slices.DeleteFunc(pods, func(p intent.Rejected) bool {
		return !slices.ContainsFunc(p.Resources, func(name string) bool { return names[name] })
	}))
}

// ReadTree reads the PCI tree and returns it as in sysfs; later decisions use it. A plugin that scans this
// tree for its devices avoids another read.
func (n *Node) ReadTree() (*topology.Tree, error) { return n.machine.read() }

// Member adds a resource. It may be called at any time.
func (n *Node) Member(resource string, kind device.Kind) *Member {
	m := &Member{node: n, resource: resource, kind: kind, log: n.config.Log.With("resource", resource)}
	m.write = m.writeLast()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = append(n.members, m)
	return m
}

// errForeign means that a server exists and must not be called.
var errForeign = errors.New("the server speaks another protocol")

// server returns the server for members' calls.
func (n *Node) server() (answerer, error) {
	if own := n.serving.Load(); own != nil {
		return local{own, n.client}, nil
	}
	if n.foreign.Load() {
		return nil, errForeign
	}
	return n.client, nil
}

// Run takes part in the coordination until ctx is done: as a client, and as the server while no other plugin
// serves.
func (n *Node) Run(ctx context.Context) error {
	defer n.conn.Close()
	defer n.sources.Close()
	var both sync.WaitGroup
	both.Go(func() { n.stayElected(ctx) })
	both.Go(func() { n.stayJoined(ctx) })
	if n.config.Withheld != nil {
		both.Go(func() { n.config.Withheld.Run(ctx) })
	}
	both.Wait()
	return nil
}
