// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"log/slog"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Config configures a Node.
type Config struct {
	RunDir     string              // directory of the lock and the socket, common to both plugins; see RunDir
	Disk       system.Disk         // for files in RunDir
	SysRoot    string              // root of sysfs (/sys)
	KubeletDir string              // the kubelet's directory (/var/lib/kubelet)
	Kubelet    configuration.Files // the kubelet's configuration; the zero value for unknown
	Topology   *nccl.File          // overrides the locations of devices in sysfs; may be nil
	Intent     Intent
	Withheld   Withheld                   // nil for nothing
	Observer   admission.DecisionObserver // nil for none
	Publisher  Publisher                  // nil for none
	// Rejected is called repeatedly while this plugin serves, with the pods that the kubelet's Topology Manager
	// has rejected a short time ago and that request a resource of the plugins. Must return immediately; may be
	// nil.
	Rejected func([]intent.Rejected)
	// Enforced is called while this plugin serves, with the first state of the enforcement of annotations and
	// each other one. Must return immediately; may be nil.
	Enforced func(intent.Enforcement)
	// Unsound is called repeatedly while this plugin serves, with all unsound devices of containers. Must return
	// immediately; may be nil.
	Unsound func([]Unsound)
	Log     *slog.Logger

	// The way to other processes and to the machine, for simulations of a node.
	Socket       Socket                         // nil for the unix socket in RunDir
	PodResources PodResources                   // nil for the kubelet's socket in KubeletDir
	Tree         func() (*topology.Tree, error) // reads the PCI tree; nil for sysfs below SysRoot
}

// PodResources is the kubelet's PodResources API; see kubelet.PodResources.
type PodResources interface {
	List(context.Context) (kubelet.View, error)
	Get(context.Context, kubelet.Pod) (kubelet.View, error)
	AllocatableCPUs(context.Context) (topology.CPUSet, error)
	Life() string
}

// Intent configures the sources of pod requests and the policy for annotations.
type Intent struct {
	Sources intent.Choice    // nil means intent.Default
	Kubelet kubelet.Endpoint // the kubelet's HTTPS server, for intent.Kubelet
	Policy  intent.Policy    // for annotations of pods
	// Readers read pods in place of the sources' own connections, for simulations of a node.
	Readers map[intent.Source]intent.Reader
}

// Withheld lists devices that plugins must not assign, because the devices are assigned in another way.
type Withheld interface {
	// Latest returns the holders of devices, by device ID, for people, and a channel that is closed after the
	// next change.
	Latest() (Holders, <-chan struct{})
	// Run updates the list until ctx is done.
	Run(ctx context.Context)
}

// Holders maps device IDs to their holders, for people: "claim team/train-0".
type Holders map[string]string

// Every is the ID for all devices in Holders: who holds which device is unknown, for the reason in place of a
// holder.
const Every = "*"

// Has reports whether a device has a holder, or may have one. A holder of a device also holds the replicas.
func (h Holders) Has(id string) bool { return h.of(id) != "" || h[Every] != "" }

// Why returns a sentence with the reason for withholding all devices, "" if the holders are known.
func (h Holders) Why() string {
	if h[Every] == "" {
		return ""
	}
	return "all devices are withheld: " + h[Every]
}

// of returns the holder of a device, "" for none.
func (h Holders) of(id string) string {
	original, _ := topology.CutReplica(id)
	return h[original]
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
