package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/survive"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// How soon the other plugin takes over from a dead server: it tries for the lock every electionStep for
// electionBurst after the connection broke, and every electionPause in any case.
const (
	electionStep  = 10 * time.Millisecond
	electionBurst = time.Second
	electionPause = 5 * time.Second
)

// reconnect is the pause between attempts to reach the server; it is short because a takeover is.
var reconnect = backoff.Config{
	BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond,
}

// Config says where things are.
type Config struct {
	RunDir     string     // folder of the lock and the socket, both plugins' own (/run/tandem)
	SysRoot    string     // root of sysfs (/sys)
	KubeletDir string     // the kubelet's folder (/var/lib/kubelet)
	Topology   *nccl.File // says where devices are, above sysfs; nil for none
	Intent     Intent
	Observer   admission.Observer // nil for none
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

// dial makes a client of the coordination socket. It connects when it is first used, and again whenever it
// has to.
func dial(runDir string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+SocketPath(runDir),
		grpc.WithTransportCredentials(peerCredentials{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("open coordination client in %s: %w", runDir, err)
	}
	return conn, nil
}

// Status asks the server of a run folder for everything it knows. It fails where none serves, nor takes over
// within a second.
func Status(ctx context.Context, runDir string) (*api.StatusResponse, error) {
	return call(ctx, runDir, func(client api.CoordinationClient) (*api.StatusResponse, error) {
		return client.Status(ctx, &api.StatusRequest{})
	})
}

// Explain asks the server of a run folder what was decided for a pod; namespace and container can be empty,
// for any.
func Explain(ctx context.Context, runDir, namespace, pod, container string) (*api.ExplainResponse, error) {
	return call(ctx, runDir, func(client api.CoordinationClient) (*api.ExplainResponse, error) {
		return client.Explain(ctx, &api.ExplainRequest{Namespace: namespace, Pod: pod, Container: container})
	})
}

// call asks the server of a run folder one thing. Where none serves there may be one in a moment: a plugin is
// replaced, and the other takes over.
func call[T any](
	ctx context.Context, runDir string, ask func(api.CoordinationClient) (T, error),
) (answer T, err error) {
	conn, err := dial(runDir)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	awaitServer(ctx, conn)
	answer, err = ask(api.NewCoordinationClient(conn))
	switch status.Code(err) {
	case codes.OK:
		return answer, nil
	case codes.NotFound, codes.InvalidArgument:
		return answer, errors.New(status.Convert(err).Message())
	case codes.Unavailable:
		return answer, unanswered(runDir)
	case codes.Unimplemented:
		return answer, fmt.Errorf("ask %s: the running plugin is of an older version that does not tell this",
			SocketPath(runDir))
	default:
		return answer, fmt.Errorf("ask %s: %w", SocketPath(runDir), err)
	}
}

// awaitServer connects, if that is possible as long as a takeover can last.
func awaitServer(ctx context.Context, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, electionBurst)
	defer cancel()
	conn.Connect()
	state := conn.GetState()
	for state != connectivity.Ready && conn.WaitForStateChange(ctx, state) {
		state = conn.GetState()
	}
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
	both.Wait()
	return nil
}

// stayElected serves whenever it gets the lock. A run folder that is removed, full or read-only while it runs
// is logged once; the plugin then goes on alone and tries again.
func (n *Node) stayElected(ctx context.Context) {
	var burst time.Time
	var complaint string
	for ctx.Err() == nil {
		n.turn()
		err := survive.Do(n.config.Log, func() error { return n.serveIfElected(ctx) })
		if err != nil && !errors.Is(err, errLocked) && err.Error() != complaint {
			n.config.Log.Error("go on without serving coordination until that is possible",
				"run_dir", n.config.RunDir, "error", err)
		}
		complaint = ""
		if err != nil && !errors.Is(err, errLocked) {
			complaint = err.Error()
		}
		pause, lost := electionPause, n.lost
		switch {
		case survive.Panicked(err): // most likely again: it is the other plugin's turn
			lost = nil
		case time.Now().Before(burst):
			pause = electionStep
		}
		select {
		case <-ctx.Done():
		case <-lost:
			burst = time.Now().Add(electionBurst)
		case <-time.After(pause):
		}
	}
}

// serveIfElected serves while it holds the lock; it returns errLocked at once where the other plugin has it.
func (n *Node) serveIfElected(ctx context.Context) error {
	if err := prepareRunDir(n.config.RunDir); err != nil {
		return err
	}
	release, err := tryLock(n.config.RunDir)
	if err != nil {
		return err
	}
	defer release()
	pods, err := kubelet.NewPodResources(n.config.KubeletDir)
	if err != nil {
		return err
	}
	defer pods.Close()
	config := admission.Config{
		RunDir:  n.config.RunDir,
		Refresh: n.machine.refresh,
		Newest:  n.machine.newest,
		Get:     pods.Get,
		Recorded: bounded.Read(n.config.Log, bounded.FileTimeout,
			kubelet.NewCheckpointReader(n.config.KubeletDir).Read),
		Granted:   func() ([]kubelet.Granted, error) { return kubelet.ReadGranted(n.config.KubeletDir) },
		Pods:      n.sources.Pods,
		Alignment: n.config.Intent.Policy.Alignment,
		Log:       n.config.Log,
		Observer:  n.config.Observer,
	}
	if n.config.Intent.Sources.Has(intent.PodResources) {
		config.Look, config.AllocatableCPUs = pods.List, pods.AllocatableCPUs
		config.NodeCPUs = func() map[int]topology.CPUSet { return topology.CPUs(os.DirFS(n.config.SysRoot)) }
	}
	listener, err := listen(n.config.RunDir)
	if err != nil {
		return err
	}
	c, err := admission.New(config)
	if err != nil {
		return errors.Join(err, listener.Close(), removeSocket(n.config.RunDir))
	}
	n.config.Log.Info("serve coordination", "socket", SocketPath(n.config.RunDir))
	return n.serve(ctx, c, listener)
}

// endTimeout is how long the work beside the answers, and then the last checkpoint, may take to end when a
// server stops. A disk that hangs is left behind.
const endTimeout = time.Second

// awaitEnd waits for work to end, for endTimeout at the most.
func awaitEnd(work *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endTimeout):
	}
}

// serve answers and writes checkpoints until ctx is done, the work beside panics, or the socket is no longer
// the one in the run folder: then nobody new finds it, and there can be a second server soon. It ends in
// order: nobody asks any more, what was asked is answered, nothing changes any more, the work beside has
// ended, the ledger is saved.
func (n *Node) serve(ctx context.Context, c *admission.Coordinator, listener *net.UnixListener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	writing, save := context.WithCancel(context.WithoutCancel(ctx))
	defer save()
	var others sync.WaitGroup
	beside := func(work func() error) {
		others.Go(func() {
			if err := survive.Do(n.config.Log, work); err != nil {
				cancel(err)
			}
		})
	}
	beside(func() error { return c.StayTidy(ctx) })
	beside(func() error { return awaitReplaced(ctx, n.config.RunDir, n.turn) })
	beside(func() error {
		if err := n.sources.Run(ctx); err != nil {
			n.config.Log.Error("do without the API server", "error", err)
		}
		return nil
	})
	var saving sync.WaitGroup
	saving.Go(func() {
		if err := survive.Do(n.config.Log, func() error { return c.Save(writing) }); err != nil {
			cancel(err)
		}
	})
	own := &server{coordinator: c, log: n.config.Log}
	n.serving.Store(own)
	err := own.serve(ctx, listener, func() { n.serving.Store(nil) })
	c.Close()
	cancel(nil)
	awaitEnd(&others)
	save()
	awaitEnd(&saving)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errReplaced):
		return cause // what is at the path now is another's
	case survive.Panicked(cause):
		err = cause
	}
	return errors.Join(err, removeSocket(n.config.RunDir))
}

// stayJoined keeps a Join stream open and announces every member over it. A server of a foreign protocol, or
// one that refuses an announcement, is left alone for an electionPause: it may be replaced.
func (n *Node) stayJoined(ctx context.Context) {
	var complaint string
	for {
		err := survive.Do(n.config.Log, func() error { return n.join(ctx) })
		if ctx.Err() != nil {
			return
		}
		reason := status.Convert(err).Message()
		switch {
		case status.Code(err) == codes.Unimplemented:
			if !n.foreign.Swap(true) {
				n.config.Log.Error("place devices without the other plugin", "reason", reason)
			}
		case refused(err):
			if reason != complaint {
				n.config.Log.Error("place devices without the other plugin: the server refuses what is announced",
					"reason", reason)
			}
			complaint = reason
		default:
			complaint = ""
			n.config.Log.Warn("lost the coordination server", "error", err)
		}
		if !refused(err) {
			select {
			case n.lost <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(joinPause(err)):
		}
	}
}

// joinPause is how long to wait before the next Join. What would most likely end in the same way again is not
// tried soon.
func joinPause(err error) time.Duration {
	if status.Code(err) == codes.Unimplemented || refused(err) || survive.Panicked(err) {
		return electionPause
	}
	return electionStep
}

// join opens one stream and announces on it until it breaks.
func (n *Node) join(ctx context.Context) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	stream, err := n.client.Join(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	welcome, err := stream.Recv()
	if err != nil {
		return err
	}
	server := version{welcome.GetProtocol(), welcome.GetMinor()}
	if err := server.serves(protocol); err != nil {
		return status.Error(codes.Unimplemented, err.Error())
	}
	n.config.Log.Info("join coordination", "protocol", server.String())
	n.foreign.Store(false)
	n.joined.Store(true)
	defer n.joined.Store(false)
	var acknowledged chan struct{} // nil where the server is too old to
	if server.acknowledges() {
		acknowledged = make(chan struct{}, 1)
	}
	go func() { lose(hear(stream, acknowledged)) }()
	sent := map[string]*api.Announcement{}
	for {
		announcements, changed := n.announcements()
		for _, a := range announcements {
			if sent[a.GetResource()] == a {
				continue
			}
			if err := checkAnnouncement(a); err != nil {
				n.config.Log.Error("place the devices of a resource without the other plugin",
					"resource", a.GetResource(),
					"reason", status.Convert(err).Message())
				sent[a.GetResource()] = a
				n.letGo(a)
				continue
			}
			if err := n.announce(ctx, stream, a, acknowledged); err != nil {
				return err
			}
			sent[a.GetResource()] = a
		}
		if err := n.tellReturned(ctx, stream, server.returns(), changed); err != nil {
			return err
		}
	}
}

// tellReturned tells a server of Allocates that have returned, if it listens, until there is something to
// announce or ctx is done.
func (n *Node) tellReturned(
	ctx context.Context, stream api.Coordination_JoinClient, listens bool, changed <-chan struct{},
) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			return nil
		case message := <-n.returned:
			if !listens {
				continue
			}
			if err := stream.Send(message); err != nil {
				<-ctx.Done() // the stream tells why
				return context.Cause(ctx)
			}
		}
	}
}

// hear passes on what the server acknowledges, until the stream breaks, and returns why.
func hear(stream api.Coordination_JoinClient, acknowledged chan<- struct{}) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		select {
		case acknowledged <- struct{}{}:
		default: // more than was announced
		}
	}
}

// announce sends an announcement and waits until the server goes by it, which it acknowledges; nil where it
// is too old to.
func (n *Node) announce(
	ctx context.Context, stream api.Coordination_JoinClient, a *api.Announcement, acknowledged <-chan struct{},
) error {
	if err := stream.Send(a); err != nil {
		<-ctx.Done() // the stream tells why
		return context.Cause(ctx)
	}
	if acknowledged != nil {
		select {
		case <-acknowledged:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	n.letGo(a)
	return nil
}

// letGo lets go who waits for an announcement.
func (n *Node) letGo(a *api.Announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.members {
		if m.message != a {
			continue
		}
		select {
		case <-m.taken: // by the server before, too
		default:
			close(m.taken)
		}
	}
}

// announcements returns the newest of every member that has one, and a channel that is closed once there is a
// newer one.
func (n *Node) announcements() ([]*api.Announcement, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*api.Announcement
	for _, m := range n.members {
		if m.message != nil {
			all = append(all, m.message)
		}
	}
	return all, n.changed
}
