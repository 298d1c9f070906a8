// SPDX-License-Identifier: Apache-2.0

// Package admission chooses the devices of a container that the kubelet is admitting.
//
// # A decision
//
// The coordinator answers a question in three phases, and holds no lock during I/O. Questions take turns.
//
//   - Read: a reader reads the kubelet's checkpoint, PodResources, the pods' requests and the CPUs into an
//     observation (read.go).
//   - Decide: a transaction works on a copy of the state and reads only the observation and the clock
//     (answer.go). After an Allocate since the read, the question is read again; if the plugin no longer
//     waits, the question ends (question.go).
//   - Commit: the copy becomes the state in a single step (state.go). Log, observer and files follow,
//     from the transaction's report (status.go).
//
// An Allocate takes the same way (allocate.go, grant.go). Readers of the state, such as Status, Explain
// and the saved state, use the last committed state. Queries change nothing.
//
// # The steps
//
// A decision has four steps, each a pure function of values read before:
//
// 1. The holders of devices (package holders). 2. The asking container (identify.go). 3. The free devices
// for the container (books.go). 4. The choice, from a request for package placement
// (request.go, answer.go).
//
// The state (state.go) has no copy of the kubelet's records, only: announced devices, own Allocates missing
// in the kubelet's records so far, names of pods, the last List, and the
// open admission (question.go): the container of the latest call, with the plan for its further devices. The
// kubelet admits containers one after another, so that a call for another container ends the admission, as
// does a pod that the kubelet no longer has.
//
// A plan reserves the second half of a container (answer.go). The next question replaces the plan, since the
// kubelet admits containers serially; an unused plan expires.
//
// # Known requests
//
// The kubelet names no container. Pure functions identify the asking container from the kubelet's checkpoint,
// PodResources and request sources. A container in admission is a container whose spec requests a resource of
// Tandem and has no device of the resource yet (identify.go). If a request source reports the pods of the
// node (package intent) and the kubelet's records report the holders (package holders), at most one container
// matches, because the kubelet admits containers serially.
//
// Without a request source, the order of the calls identifies the container (sequence.go). The kubelet writes
// its device checkpoint after all resources of a container are allocated, before the next container. A call
// therefore belongs to the container of the latest Allocate if, and only if, the checkpoint is unchanged
// since. Two exceptions:
//
//   - A changed device list writes the checkpoint amid a container. PodResources then shows the container.
//   - If the kubelet rejects a pod amid a container, the kubelet does not write the checkpoint. The pod is
//     then missing in PodResources and in request sources (evidence.go). Of a container whose pod is unknown,
//     a pause of a second decides: no kubelet needs as long between two resources.
//
// For a known container the first question is answered for the whole request, with a half for each
// resource. A known container also yields the recipient of an Allocate without a question, the devices chosen
// by a scheduler (answer.go), and the required alignment (refusal.go). If VFs have no NUMA node, the
// container's exclusive CPUs predict the NUMA node of its GPUs (request.go).
//
// PodResources List is read only inside GetPreferredAllocation, never during an Allocate of either plugin:
// List could make the kubelet hand out a device twice (allocate.go).
//
// # Refusals
//
// Allocate refuses a device held by a different pod, as confirmed by PodResources Get (refusal.go): the
// kubelet can hand out a device twice (kubernetes PR 137534). Without confirmation (Get is available from
// 1.34), the container gets the device, and an error is logged.
//
// # Persistence
//
// A separate goroutine writes the state of admissions in progress, with the holders found last, to
// <run-dir>/coordinator.json after each Allocate, pairs file and announcement (saved.go, store.go). The next
// question replaces what a question has changed. A file with damage, of an unknown version or with wrong
// permissions is renamed to coordinator.json.bad; without the file, the kubelet's records suffice.
//
// The last 256 decisions are kept in memory for "tandem explain" (history.go). Devices of ended
// containers are shown as free, after a survey of the kubelet (survey.go, status.go).
//
// # Pairs files
//
// A container can request a file with its pairs (package pairs). The RDMA plugin mounts the file with the
// VFs; the coordinator adds the GPUs before the answer to the last Allocated of the container, in either
// order of the halves (pairs.go). The kubelet's checkpoint keeps the mount for the container's
// lifetime and decides when a file is removed.
package admission

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Coordinator answers for both plugins: a Coordinator combines the kubelet's separate questions into a single
// decision.
type Coordinator struct {
	*Config
	*committedState
	*inspector
	Allocates *Allocates

	reader *reader
	store  *store[savedState]
	pairs  *pairs.Folder
	turn   *semaphore.Weighted // of questions: one at a time
}

// New returns a coordinator that continues from the file of an earlier coordinator in the run folder.
func New(config Config) (*Coordinator, error) {
	opened, err := openStore[savedState](config.Disk, config.RunDir, config.Log)
	if err != nil {
		return nil, err
	}
	folder := pairs.NewFolder(config.Disk, filepath.Join(config.RunDir, "pairs"), config.Log)
	c := newCoordinator(&config, opened, folder, config.Machine.Newest(), time.Now)
	c.recoverState()
	return c, nil
}

// newCoordinator returns a coordinator with an empty state.
func newCoordinator(
	config *Config, saved *store[savedState], folder *pairs.Folder, tree *topology.Tree,
	now func() time.Time,
) *Coordinator {
	committed := &committedState{now: now, began: now()}
	committed.state.Store(newState(tree))
	committed.history.isHeld = func(uid, resource, id string) bool {
		h := committed.current().books().holders.Of(resource, id)
		return h != nil && slices.Contains(h.Devices[resource], id) && (uid == "" || h.UID == "" || h.UID == uid)
	}
	allocates := newAllocates(now)
	reader := &reader{Config: config, allocates: allocates}
	return &Coordinator{
		Config: config, committedState: committed, inspector: &inspector{reader: reader, committed: committed},
		Allocates: allocates, reader: reader, store: saved,
		pairs: folder, turn: semaphore.NewWeighted(1),
	}
}

// recoverState continues from the state of an earlier server. The kubelet's checkpoint has the holders.
func (c *Coordinator) recoverState() {
	if saved, ok := c.store.load(); ok {
		restore := func() error { return c.restore(saved, c.Log) }
		if err := system.Survive(c.Log, restore); err != nil {
			c.store.setAside(err)
		}
	}
	c.restoreHolders()
}

// Save writes the state for the next server after each change but those of a question, and a last time when
// ctx is done. Must be called at most once.
func (c *Coordinator) Save(ctx context.Context) error {
	return c.store.run(ctx, c.save)
}

// Alive returns an error if a decision hangs until ctx is done, so that a restart would help.
func (c *Coordinator) Alive(ctx context.Context) error { return c.awaitUnlocked(ctx) }

// Close ends all decisions and records.
func (c *Coordinator) Close() { c.locked(func() { c.closed = true }) }

// decide decides, commits and reports. After an error, nothing has changed.
func (c *Coordinator) decide(work func(*transaction) error) error {
	tx, err := c.commit(work)
	if err == nil {
		c.reportDecision(tx)
	}
	return err
}

// reportDecision passes the report of a committed decision to log, observer and pairs files. Returns false if
// a pairs file is incomplete.
func (c *Coordinator) reportDecision(tx *transaction) bool {
	tx.report.publish(c.Log, c.Observer)
	if tx.paired == nil {
		return true
	}
	all := func() []pairs.Device { return pairedDevices(tx.state, tx.paired, c.current()) }
	return c.pairs.Complete(tx.paired.Files, tx.paired.VFs, tx.tree, all)
}

// Config has the sources and the observer of a coordinator.
type Config struct {
	RunDir    string           // folder of the saved state and of pairs files
	Disk      system.Disk      // of the same files
	Alignment intent.Alignment // of pods without a setting
	Log       *slog.Logger
	// Observer receives each Answered, Planned, PlanOutcome, Verdict and Call. The kubelet waits meanwhile:
	// Observer must return at once. May be nil.
	Observer func(event any)

	Machine Machine
	Kubelet Kubelet
	Pods    Pods
	MayList bool // questions may read Kubelet.List
}

// Machine is the PCI tree of the node. The methods are safe for concurrent use.
type Machine interface {
	// Refresh reads the tree if an announcement has devices missing in the newest tree.
	Refresh(device.Announcement) error
	// Newest returns the last read tree.
	Newest() *topology.Tree
}

// Kubelet has the records of the node's kubelet. The methods are safe for concurrent use.
type Kubelet interface {
	// Life identifies the running kubelet; "" if unknown.
	Life() string
	// Checkpoint reads the device holders in the kubelet's checkpoint.
	Checkpoint() (kubelet.Checkpoint, error)
	// Granted reads the devices and mounts of containers in the checkpoint.
	Granted() ([]kubelet.Granted, error)
	// List returns all pods by PodResources List. List is never called during an Allocate.
	List(context.Context) (kubelet.View, error)
	// Get returns a pod by PodResources Get, which is safe at any time.
	Get(context.Context, kubelet.Pod) (kubelet.View, error)
	// CPUs returns the CPUs available for exclusive use, none if the policy is not static, and all CPUs by NUMA
	// node.
	CPUs(context.Context) (exclusive topology.CPUSet, all map[int]topology.CPUSet, err error)
	// TopologyManager returns the kubelet's Topology Manager.
	TopologyManager() (model.TopologyManager, error)
}

// Pods has the requests of the node's pods. The method is safe for concurrent use.
type Pods interface {
	Pods(context.Context) (intent.Answer, error)
}
