// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Config configures a Node.
type Config struct {
	RunDir     string              // directory of the lock and the socket of both plugins; see RunDir
	Disk       system.Disk         // for files in RunDir
	SysRoot    string              // root of sysfs (/sys)
	KubeletDir string              // the kubelet's directory (/var/lib/kubelet)
	Kubelet    kubelet.ConfigFiles // the kubelet's configuration; the zero value for unknown
	Topology   *nccl.File          // overrides the locations of devices in sysfs; may be nil
	Intent     intent.Config       // without KubeletDir and Log; Rejected is told of Tandem's pods
	CDIDir     string              // of the CDI specifications of claims
	Observer   func(event any)     // see admission.Config; nil for none
	Publisher  Publisher           // nil for none
	// Unsound is called repeatedly while this plugin serves, with all unsound devices of containers. Must return
	// immediately; may be nil.
	Unsound func([]Unsound)
	Log     *slog.Logger

	// The way to other processes and to the machine, for simulations of a node.
	Socket       Socket                         // nil for the unix socket in RunDir
	OverSocket   bool                           // a plugin asks its own server over the socket too
	PodResources PodResources                   // nil for the kubelet's socket in KubeletDir
	Tree         func() (*topology.Tree, error) // reads the PCI tree; nil for sysfs below SysRoot

	claims *claimWatch // nil for no claims
}

// PodResources is the kubelet's PodResources API; see kubelet.PodResources.
type PodResources interface {
	List(context.Context) (kubelet.View, error)
	Get(context.Context, kubelet.Pod) (kubelet.View, error)
	AllocatableCPUs(context.Context) (topology.CPUSet, error)
	Life() string
}

// Publisher publishes the node while this plugin serves. No other work waits for a Publisher.
type Publisher interface {
	// Publish runs until ctx is done. Publish may be called again afterwards.
	Publish(ctx context.Context, plugins Announced) error
	// Notes returns sentences about objects that cannot be published now, sorted; none if all objects are up
	// to date.
	Notes() []string
}

// Announced is the serving plugin's knowledge about the node.
type Announced interface {
	// Announced returns the latest announcements, which never change, and a channel that is closed after the
	// next announcement.
	Announced() (admission.Announced, <-chan struct{})
	// Enforcement returns the state of the enforcement of annotations, and a channel that is closed after the
	// next change.
	Enforcement() (intent.Enforcement, <-chan struct{})
	// Policy returns the policy for annotations of pods.
	Policy() intent.Policy
}

// newCoordinator returns a coordinator for a node, with reads of this machine and of the node's kubelet.
func newCoordinator(
	c *Config, machine *machine, sources *intent.Sources, pods PodResources,
) (*admission.Coordinator, error) {
	return admission.New(admission.Config{
		RunDir:    c.RunDir,
		Disk:      c.Disk,
		Alignment: c.Intent.Policy.Alignment,
		Log:       c.Log,
		Observer:  c.Observer,
		Machine:   machine,
		Kubelet:   newNodeKubelet(c, machine, pods),
		Pods:      sources,
		MayList:   slices.Contains(c.Intent.Choice, intent.PodResources),
	})
}

// nodeKubelet has the records of the node's kubelet, by PodResources and by files.
type nodeKubelet struct {
	PodResources
	config     *Config
	checkpoint func() (kubelet.Checkpoint, error)
	granted    func() ([]kubelet.Granted, error)
	manager    func() (model.TopologyManager, error)
}

// fileLimit is for one of the kubelet's files, which usually takes a tenth of a millisecond: half of the time
// that a question has for all reads.
const fileLimit = system.QuestionLimit / 4

// newNodeKubelet returns the kubelet of a node. A disk that hangs costs a time limit.
func newNodeKubelet(c *Config, machine *machine, pods PodResources) *nodeKubelet {
	return &nodeKubelet{
		PodResources: pods, config: c,
		checkpoint: system.BoundRead(c.Log, fileLimit, kubelet.NewCheckpointReader(c.KubeletDir).Read),
		granted: system.BoundRead(c.Log, takeTimeout, func() ([]kubelet.Granted, error) {
			return kubelet.ReadGranted(c.KubeletDir)
		}),
		manager: system.BoundRead(c.Log, fileLimit, func() (model.TopologyManager, error) {
			return readManager(c.Kubelet, os.DirFS(c.SysRoot), machine.Newest())
		}),
	}
}

// Checkpoint reads the device holders in the checkpoint.
func (k *nodeKubelet) Checkpoint() (kubelet.Checkpoint, error) { return k.checkpoint() }

// Granted reads the devices and mounts of containers in the checkpoint.
func (k *nodeKubelet) Granted() ([]kubelet.Granted, error) { return k.granted() }

// CPUs returns the CPUs available for exclusive use, and all CPUs by NUMA node.
func (k *nodeKubelet) CPUs(
	ctx context.Context,
) (exclusive topology.CPUSet, all map[int]topology.CPUSet, err error) {
	exclusive, err = k.AllocatableCPUs(ctx)
	if err != nil || len(exclusive) == 0 {
		return nil, nil, err
	}
	all, err = topology.CPUs(os.DirFS(k.config.SysRoot))
	return exclusive, all, err
}

// TopologyManager returns the Topology Manager by the kubelet's configuration.
func (k *nodeKubelet) TopologyManager() (model.TopologyManager, error) { return k.manager() }

// readManager returns the Topology Manager by files of the kubelet's configuration.
func readManager(
	files kubelet.ConfigFiles, sys fs.FS, tree *topology.Tree,
) (m model.TopologyManager, err error) {
	kubelet, err := readKubelet(files)
	if err != nil {
		return m, err
	}
	return kubelet.TopologyManager(model.ReadNUMANodes(sys, tree.NUMANodes()))
}

// readKubelet reads the kubelet's settings. A policy is empty, for unknown, if no file names it: a flag of
// the kubelet may set the policy. So is, without a folder of drop-ins, a policy other than the strictest,
// because a drop-in elsewhere may override the file: tandem doctor --drop-in prints such a one.
func readKubelet(files kubelet.ConfigFiles) (model.Kubelet, error) {
	settings, err := kubelet.ReadSettings(files, nil)
	if err != nil {
		return model.Kubelet{}, err
	}
	for _, s := range []struct {
		key, strict string
		value       *string
	}{
		{"topologyManagerPolicy", string(model.Restricted), &settings.Policy},
		{"cpuManagerPolicy", "static", &settings.CPUPolicy},
		{"memoryManagerPolicy", "Static", &settings.MemoryPolicy},
	} {
		if settings.Origin(s.key) == "" || files.Dir == "" && *s.value != s.strict {
			*s.value = ""
		}
	}
	return settings.Model()
}

// machine is the PCI tree of the last read. A read of a node with a thousand VFs takes a tenth of a second of
// CPU time, so every change is read only once: by the plugin's scan for devices, or after an announcement.
type machine struct {
	source func() (*topology.Tree, error) // reads sysfs
	file   *nccl.File                     // may be nil

	reading sync.Mutex // serializes reads, so that the last read wins

	mu   sync.Mutex
	tree *topology.Tree // with devices moved to their places in the file
}

// newTreeReader returns a function that reads the tree below a root of sysfs.
func newTreeReader(root string) func() (*topology.Tree, error) {
	return func() (*topology.Tree, error) {
		tree, err := topology.Read(os.DirFS(root))
		if err != nil {
			return nil, fmt.Errorf("read the PCI tree below %s: %w", root, err)
		}
		return tree, nil
	}
}

// read reads and stores the tree, and returns it as in sysfs.
func (m *machine) read() (*topology.Tree, error) {
	m.reading.Lock()
	defer m.reading.Unlock()
	tree, err := m.source()
	if err != nil {
		return nil, err
	}
	placed := tree
	if m.file != nil {
		placed, err = m.file.Apply(tree)
		if err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tree = placed
	return tree, nil
}

// Newest returns the tree of the last read.
func (m *machine) Newest() *topology.Tree {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tree
}

// Refresh makes the tree at least as recent as an announcement. Devices change with the machine, so another
// process's announcement causes a read. This process's plugins read the tree themselves, so that only an
// announcement of a device outside the tree causes a read.
func (m *machine) Refresh(a device.Announcement) error {
	if a.Own && covers(m.Newest(), a.Devices) {
		return nil
	}
	_, err := m.read()
	return err
}

// covers reports whether a tree contains all healthy devices.
func covers(tree *topology.Tree, devices []device.Device) bool {
	return !slices.ContainsFunc(devices, func(d device.Device) bool {
		_, known := tree.Device(d.Address)
		return d.Healthy && !known
	})
}
