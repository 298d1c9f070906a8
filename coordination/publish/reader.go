// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// askTimeout limits the request for the kubelet's configuration.
const askTimeout = 5 * time.Second

// ReaderConfig has the sources of facts.
type ReaderConfig struct {
	Sys        fs.FS  // root of sysfs
	KubeletDir string // the kubelet's folder (/var/lib/kubelet)
	Files      kubelet.ConfigFiles
	// Configz requests the kubelet's configuration, which takes precedence over Files; nil if not available.
	Configz func(context.Context) ([]byte, error)
	// Pods requests the kubelet's pods; nil if not available. It returns an error while the kubelet does not
	// know all of them.
	Pods func(ctx context.Context, each func(*corev1.Pod)) error
	Log  *slog.Logger
}

// Reader reads facts repeatedly. It is not safe for concurrent use.
type Reader struct {
	config     ReaderConfig
	assigned   assignments
	kubelet    *model.Kubelet // of the running kubelet; nil if unknown
	stale      bool           // the configuration must be read again
	tree       *topology.Tree // the tree of the NUMA nodes; nil if they must be read again
	numa       []NUMANode
	before     model.Kubelet               // the last configuration
	complaints map[string]system.Complaint // by subject
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(config ReaderConfig) *Reader {
	return &Reader{
		config: config, complaints: map[string]system.Complaint{},
		assigned: assignments{checkpoint: kubelet.NewCheckpointReader(config.KubeletDir)},
	}
}

// Restarted reports a restart of the kubelet, whose configuration may have changed.
func (r *Reader) Restarted() { r.kubelet, r.tree = nil, nil }

// Recheck makes the next Read also reread everything that is usually read once per start of the kubelet, in
// case of a missed start.
func (r *Reader) Recheck() { r.stale, r.tree = true, nil }

// Read reads all facts except the plugins' announcements and the last holders. Errors are logged once.
func (r *Reader) Read(
	ctx context.Context, tree *topology.Tree, resources []Resource, before holders.Sources,
) Facts {
	f := Facts{
		Tree: tree, Resources: resources, NUMANodes: r.numaNodes(tree),
		Kubelet: r.configuration(ctx),
	}
	list := func(each func(*corev1.Pod)) bool { return r.pods(ctx, each) }
	for _, a := range r.assigned.read(r.config.KubeletDir, list, before, &f) {
		if !r.works(a.subject, a.err) {
			f.Stale = errors.Join(f.Stale, a.err)
		}
	}
	return f
}

// pods calls each with the kubelet's pods, which include all running pods of an earlier checkpoint. It
// returns false if the kubelet does not list pods, which is no error: kubelets before 1.37 cannot.
func (r *Reader) pods(ctx context.Context, each func(*corev1.Pod)) (told bool) {
	if r.config.Pods == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.config.Pods(ctx, each) == nil
}

// numaNodes returns the machine's NUMA nodes. It reads them, two files per CPU, once per tree and per start
// of the kubelet, because the kubelet reads them at its start, and again after an error.
func (r *Reader) numaNodes(tree *topology.Tree) []NUMANode {
	if r.tree == tree {
		return r.numa
	}
	numa, err := readNUMA(r.config.Sys, tree.NUMANodes())
	if r.numa = numa; r.works("NUMA nodes", err) {
		r.tree = tree
	}
	return r.numa
}

// configuration returns the kubelet's configuration. It reads the configuration once per start of the
// kubelet, after each Recheck, and until a read succeeds. The kubelet's own answer stays valid until a
// restart or another answer.
func (r *Reader) configuration(ctx context.Context) model.Kubelet {
	if r.kubelet != nil && !r.stale {
		return *r.kubelet
	}
	read, err := newKubelet(kubelet.ReadSettings(r.config.Files, nil)) // without the kubelet's flags
	if r.config.Configz != nil {
		switch told, refused := r.askKubelet(ctx); {
		case refused == nil:
			read, err = told, nil
		case err != nil:
			err = refused
		default: // until the kubelet can be asked
			r.works("configz", refused)
			if r.kubelet != nil {
				return *r.kubelet
			}
			return read
		}
	}
	if !r.works("configuration", err) {
		return r.before // a kubelet does not answer right after its start
	}
	r.kubelet, r.before, r.stale = &read, read, false
	return read
}

// askKubelet asks the kubelet for its configuration.
func (r *Reader) askKubelet(ctx context.Context) (model.Kubelet, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := r.config.Configz(ctx)
	if err != nil {
		return model.Kubelet{}, err
	}
	return newKubelet(kubelet.ParseConfigz(body))
}

func newKubelet(s kubelet.Settings, err error) (model.Kubelet, error) {
	if err != nil {
		return model.Kubelet{}, err
	}
	return s.Model()
}

// works reports whether err is nil, and logs a new error.
func (r *Reader) works(subject string, err error) bool {
	complaint := r.complaints[subject]
	if complaint.IsNew(err) {
		r.config.Log.Warn(consequences[subject], "error", err)
	}
	r.complaints[subject] = complaint
	return err == nil
}

// consequences are the effects of unreadable subjects.
var consequences = map[string]string{
	checkpointSubject: "devices of pods not read; publishing the last known devices, none if never read",
	"configuration": "kubelet configuration not read; schedulers cannot predict rejections; set " +
		"--kubelet-config to the file, or --kubelet-address to query the kubelet",
	"configz": "kubelet not queried; publishing the configuration from the file, without the " +
		"kubelet's flags",
	"NUMA nodes":         "NUMA nodes not read as a whole; publishing what was read, until the rest can be read",
	kubelet.CPUStateFile: "CPUs of containers not read; publishing the last known CPUs, none if never read",
	kubelet.MemoryStateFile: "memory of containers not read; publishing the last known memory, " +
		"none if never read",
}
