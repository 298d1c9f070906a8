// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Options are the properties of a node that a promise must not depend on.
type Options struct {
	Machine  string
	VFs      int  // on each PF, at the beginning
	Counters bool // the API server has shared counters
	Taints   bool // the API server has taints of devices
	Rolling  bool // an instance of the driver is replaced while it runs
	PodsAPI  bool // the kubelet has the Pods API
	Migrated bool // pods have devices from device plugins, at the beginning

	Condition string // of every storm; "" for each in turn
}

const (
	nodeName = "node-1"
	vfsPerPF = 8 // published
)

// Node is a node with a driver, a kubelet and an API server. Its methods must be called by one goroutine, in
// a bubble of package synctest.
type Node struct {
	options   Options
	dir       string
	log       *slog.Logger
	hardware  *hardware.Machine
	disk      *disk.Disk
	server    *apiserver.Server
	old       *oldPods
	processes []*process // that run, the oldest first
	dying     []*process // killed, and not yet ended
	started   int
	pods      []*pod // that the kubelet or the API server knows
	made      int    // pods and claims
	draining  bool   // the node goes back to device plugins: processes only unprepare claims
	absent    time.Time
	story     seeds.Story
	foreign   foreign
}

// newNode makes a node in an empty directory, and starts no process.
func newNode(dir string, seed uint64, options Options, log *slog.Logger) (*Node, error) {
	machine, err := hardware.New(options.Machine, options.VFs)
	if err != nil {
		return nil, err
	}
	n := &Node{
		options: options, dir: dir, log: log, hardware: machine, disk: disk.New(seed), server: apiserver.New(),
	}
	n.disk.Name(dra.PluginDir(n.kubeletDir()), "claims")
	n.disk.Name(n.pairsDir(), "pairs")
	if err := n.makeFiles(); err != nil {
		return nil, err
	}
	features := n.server.Features()
	features.Counters, features.Taints = options.Counters, options.Taints
	n.server.SetFeatures(features)
	n.server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}})
	n.old = newOldPods(n)
	if n.foreign, err = n.makeForeign(); err != nil {
		return nil, err
	}
	if options.Migrated {
		return n, n.old.migrate()
	}
	return n, nil
}

// makeFiles makes the directories of the node, and the configuration of the VFs.
func (n *Node) makeFiles() error {
	for _, dir := range []string{
		filepath.Join(n.kubeletDir(), "plugins_registry"), filepath.Join(n.kubeletDir(), "device-plugins"),
		filepath.Join(n.kubeletDir(), "plugins", otherDriver),
	} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make a node: %w", err)
		}
	}
	const pools = `{"resourceList": [{"resourceName": "vf", "resourcePrefix": "nvidia.com",
		"selectors": {"isRdma": true}, "tandem": {"pairs": true}}]}`
	if err := os.WriteFile(n.path("pools.json"), []byte(pools), 0o600); err != nil {
		return fmt.Errorf("make a node: %w", err)
	}
	return n.makeVolatile()
}

// makeVolatile makes the directories in memory.
func (n *Node) makeVolatile() error {
	for _, dir := range n.volatile() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a folder in memory: %w", err)
		}
	}
	return nil
}

// volatile returns the directories in memory.
func (n *Node) volatile() []string {
	return []string{n.runDir(), n.pairsDir(), n.cdiDir(), n.path("devinfo")}
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *Node) runDir() string          { return n.path("run") }
func (n *Node) pairsDir() string        { return filepath.Join(n.runDir(), "claim-pairs") }
func (n *Node) cdiDir() string          { return n.path("cdi") }
func (n *Node) kubeletDir() string      { return n.path("kubelet") }

// trace tells an event.
func (n *Node) trace(format string, args ...any) { n.story.Add(fmt.Sprintf(format, args...)) }

// reap removes ended processes, and returns the first error of a process that ended by itself.
func (n *Node) reap() (failed error) {
	synctest.Wait()
	n.processes = slices.DeleteFunc(n.processes, func(p *process) bool {
		if p.killed.Load() {
			n.dying = append(n.dying, p)
			return true
		}
		select {
		case p.ended = <-p.done:
			n.trace("%s ends by itself: %v", p.uid, p.ended)
			failed = fmt.Errorf("%s ended by itself: %w", p.uid, p.ended)
			p.cancel()
			p.hangUp()
			return true
		default:
			return false
		}
	})
	return failed
}

// finish ends a process in order.
func (n *Node) finish(p *process) error {
	n.trace("%s ends", p.uid)
	p.cancel()
	err := <-p.done
	p.hangUp()
	n.processes = slices.DeleteFunc(n.processes, func(o *process) bool { return o == p })
	if err != nil && !p.killed.Load() {
		return fmt.Errorf("end %s: %w", p.uid, err)
	}
	return nil
}

// bury waits for the end of killed processes.
func (n *Node) bury() {
	_ = n.reap()
	for _, p := range n.dying {
		<-p.done
		p.hangUp()
	}
	n.dying = nil
}

// losePower ends all processes and the machine, and starts the machine again.
func (n *Node) losePower() error {
	for _, p := range n.processes {
		p.kill()
	}
	n.bury()
	if err := n.disk.PowerFailure(n.volatile()...); err != nil {
		return fmt.Errorf("lose power: %w", err)
	}
	stamp(dra.PluginDir(n.kubeletDir()))
	if err := n.makeVolatile(); err != nil {
		return err
	}
	return n.foreign.restore()
}

// finishAll ends all processes in order, by the given function.
func (n *Node) finishAll(finish func(*process) error) error {
	for len(n.processes) > 0 {
		if err := finish(n.processes[0]); err != nil {
			return err
		}
	}
	n.bury()
	return nil
}

// stop ends all processes.
func (n *Node) stop() error {
	n.server.Heal()
	return n.finishAll(n.finish)
}

// newest returns the newest process that runs, nil for none.
func (n *Node) newest() *process {
	for _, p := range slices.Backward(n.processes) {
		if p.lives() {
			return p
		}
	}
	return nil
}
