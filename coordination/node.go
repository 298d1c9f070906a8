package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// How soon the other plugin takes over from a dead server: it tries for the lock every electionStep for electionBurst after
// the connection broke, and every electionPause in any case.
const (
	electionStep  = 10 * time.Millisecond
	electionBurst = time.Second
	electionPause = 5 * time.Second
)

// reconnect is the pause between attempts to reach the server; it is short because a takeover is.
var reconnect = backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}

// Config says where things are.
type Config struct {
	RunDir     string // folder of the lock and the socket, both plugins' own (/run/tandem)
	SysRoot    string // root of sysfs (/sys)
	KubeletDir string // the kubelet's folder (/var/lib/kubelet)
	Log        *slog.Logger
}

// Node is a plugin's part in the coordination of its node: always a client, and the server while it holds the lock.
type Node struct {
	config Config
	conn   *grpc.ClientConn
	client api.CoordinationClient
	lost   chan struct{} // the connection to the server broke

	mu      sync.Mutex
	tree    *topology.Tree // as of the last announcement
	members []*Member
	changed chan struct{} // closed and replaced on every announcement
}

// New prepares the run folder, reads the PCI tree and makes a client; it starts nothing.
func New(config Config) (*Node, error) {
	if err := prepareRunDir(config.RunDir); err != nil {
		return nil, err
	}
	tree, err := readTree(config.SysRoot)
	if err != nil {
		return nil, err
	}
	conn, err := dial(config.RunDir)
	if err != nil {
		return nil, err
	}
	return &Node{
		config:  config,
		conn:    conn,
		client:  api.NewCoordinationClient(conn),
		tree:    tree,
		lost:    make(chan struct{}, 1),
		changed: make(chan struct{}),
	}, nil
}

// dial makes a client of the coordination socket. It connects when it is first used, and again whenever it has to.
func dial(runDir string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+SocketPath(runDir),
		grpc.WithTransportCredentials(peerCredentials{}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("open coordination client in %s: %w", runDir, err)
	}
	return conn, nil
}

// Status asks the server of a run folder for everything it knows. It fails where none serves.
func Status(ctx context.Context, runDir string) (*api.StatusResponse, error) {
	conn, err := dial(runDir)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := api.NewCoordinationClient(conn).Status(ctx, &api.StatusRequest{})
	if status.Code(err) == codes.Unavailable {
		return nil, fmt.Errorf("ask %s: nobody answers; is a plugin running on this node, with this --run-dir?", SocketPath(runDir))
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for status: %w", SocketPath(runDir), err)
	}
	return answer, nil
}

// Member makes the part of one resource. Call it before Run.
func (n *Node) Member(resource string, kind Kind) *Member {
	m := &Member{node: n, resource: resource, kind: kind, log: n.config.Log.With("resource", resource)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members = append(n.members, m)
	return m
}

// Run takes part until ctx is done: joined as a client, and serving while nobody else does.
func (n *Node) Run(ctx context.Context) error {
	defer n.conn.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.serveWhenElected(ctx) })
	g.Go(func() error { n.stayJoined(ctx); return nil })
	return g.Wait()
}

// serveWhenElected waits for the lock and serves from then on.
func (n *Node) serveWhenElected(ctx context.Context) error {
	var burst time.Time
	for {
		release, err := tryLock(n.config.RunDir)
		if err == nil {
			defer release()
			return n.serve(ctx)
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		pause := electionPause
		if time.Now().Before(burst) {
			pause = electionStep
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.lost:
			burst = time.Now().Add(electionBurst)
		case <-time.After(pause):
		}
	}
}

func (n *Node) serve(ctx context.Context) error {
	pods, err := kubelet.NewPodResources(n.config.KubeletDir)
	if err != nil {
		return err
	}
	defer pods.Close()
	listener, err := listen(n.config.RunDir)
	if err != nil {
		return err
	}
	n.config.Log.Info("serve coordination", "socket", SocketPath(n.config.RunDir))
	s := &server{coordinator: &coordinator{
		readTree: func() (*topology.Tree, error) { return readTree(n.config.SysRoot) },
		look:     pods.List,
		get:      pods.Get,
		recorded: func() (kubelet.Checkpoint, error) { return kubelet.ReadCheckpoint(n.config.KubeletDir) },
		log:      n.config.Log,
		tree:     n.lastTree(),
		ledger:   newLedger(time.Now),
	}}
	return s.serve(ctx, listener)
}

func readTree(sysRoot string) (*topology.Tree, error) {
	tree, err := topology.Read(os.DirFS(sysRoot))
	if err != nil {
		return nil, fmt.Errorf("read the PCI tree below %s: %w", sysRoot, err)
	}
	return tree, nil
}

func (n *Node) lastTree() *topology.Tree {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tree
}

// stayJoined keeps a Join stream open and announces every member over it.
func (n *Node) stayJoined(ctx context.Context) {
	for {
		if err := n.join(ctx); ctx.Err() == nil {
			n.config.Log.Warn("lost the coordination server", "error", err)
		}
		select {
		case n.lost <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(electionStep):
		}
	}
}

// join opens one stream and announces on it until it breaks.
func (n *Node) join(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.client.Join(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	welcome, err := stream.Recv()
	if err != nil {
		return err
	}
	n.config.Log.Info("join coordination", "protocol", welcome.GetProtocol())
	broken := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		broken <- err
	}()
	for {
		announcements, changed := n.announcements()
		for _, a := range announcements {
			if err := stream.Send(a); err != nil {
				return <-broken
			}
		}
		select {
		case err := <-broken:
			return err
		case <-changed:
		}
	}
}

// announcements returns the newest of every member that has one, and a channel that is closed once there is a newer one.
func (n *Node) announcements() ([]*api.Announcement, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*api.Announcement
	for _, m := range n.members {
		if m.announced {
			all = append(all, encodeAnnouncement(m.resource, m.kind, m.announcement))
		}
	}
	return all, n.changed
}
