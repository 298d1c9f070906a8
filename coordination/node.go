package coordination

import (
	"context"
	"errors"
	"log/slog"
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

// Config says where things are.
type Config struct {
	RunDir     string     // folder of the lock and the socket, both plugins' own; see RunDir
	SysRoot    string     // root of sysfs (/sys)
	KubeletDir string     // the kubelet's folder (/var/lib/kubelet)
	Topology   *nccl.File // says where devices are, above sysfs; nil for none
	Intent     Intent
	Withheld   Withheld           // nil for nothing
	Observer   admission.Observer // nil for none
	Publisher  Publisher          // nil for none
	Log        *slog.Logger
}

// Intent says what may be looked at to know what containers ask for, and what they must get.
type Intent struct {
	Sources  intent.Choice    // nil for intent.Default
	Kubelet  kubelet.Endpoint // its HTTPS server, for intent.Kubelet
	NodeName string           // for intent.APIServer
	Policy   intent.Policy    // what pods may say
}

// Node is a plugin's part in the coordination of its node: always a client, and the server while it holds the
// lock.
type Node struct {
	config   Config
	machine  *machine
	sources  *intent.Sources
	conn     *grpc.ClientConn
	client   api.CoordinationClient
	lost     chan struct{}                           // the connection to the server broke
	handouts map[device.Kind]func() (handout, error) // of both plugins

	returned chan *api.Announcement // of Allocates that have returned, for the server

	foreign atomic.Bool // the server speaks another protocol: it is not asked
	joined  atomic.Bool
	serving atomic.Pointer[server]    // nil while another plugin serves
	beat    atomic.Pointer[time.Time] // when the election took its last turn

	mu      sync.Mutex
	members []*Member
	changed chan struct{} // closed and replaced on every announcement
}

// New prepares the run folder, reads the PCI tree and makes a client; it starts nothing. It fails where the
// run folder cannot be used, and says what to do about it.
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
	sources, err := intent.Open(intent.Config{
		Choice:     config.Intent.Sources,
		KubeletDir: config.KubeletDir,
		Kubelet:    config.Intent.Kubelet,
		Node:       config.Intent.NodeName,
		Policy:     config.Intent.Policy,
		Log:        config.Log,
	})
	if err != nil {
		return nil, err
	}
	conn, err := dial(config.RunDir)
	if err != nil {
		return nil, errors.Join(err, sources.Close())
	}
	return &Node{
		config:   config,
		machine:  machine,
		sources:  sources,
		conn:     conn,
		client:   api.NewCoordinationClient(conn),
		lost:     make(chan struct{}, 1),
		returned: make(chan *api.Announcement, maxCalls),
		handouts: readHandouts(config.Log, config.RunDir),
		changed:  make(chan struct{}),
	}, nil
}

// ReadTree reads the PCI tree as sysfs has it; devices are placed by it from now on. A plugin that looks for
// its devices in this tree spares the others a reading.
func (n *Node) ReadTree() (*topology.Tree, error) { return n.machine.read() }

// Member makes the part of one resource, at any time.
func (n *Node) Member(resource string, kind device.Kind) *Member {
	m := &Member{node: n, resource: resource, kind: kind, log: n.config.Log.With("resource", resource)}
	m.write = m.writeLast()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = append(n.members, m)
	return m
}

// errForeign means that there is a server, but it is not to be asked.
var errForeign = errors.New("the server speaks another protocol")

// server is whom members ask.
func (n *Node) server() (answerer, error) {
	if own := n.serving.Load(); own != nil {
		return local{own, n.client}, nil
	}
	if n.foreign.Load() {
		return nil, errForeign
	}
	return n.client, nil
}

// Run takes part until ctx is done: joined as a client, and serving while nobody else does.
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
