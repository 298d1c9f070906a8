// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// askTimeout is how long the kubelet may take to tell its configuration.
const askTimeout = 5 * time.Second

// Config says where facts are.
type Config struct {
	Sys        fs.FS  // root of sysfs
	KubeletDir string // the kubelet's folder (/var/lib/kubelet)
	Files      Files
	// Configz asks the kubelet for its configuration; nil where it cannot be asked. It stands above Files.
	Configz func(context.Context) ([]byte, error)
	// Pods asks the kubelet for its pods; nil where it cannot be asked. It fails while the kubelet does not know
	// all of them.
	Pods func(context.Context) ([]corev1.Pod, error)
	Log  *slog.Logger
}

// Reader reads facts again and again. It is for one goroutine.
type Reader struct {
	config     Config
	checkpoint *kubelet.CheckpointReader

	kubelet    *v1alpha1.Kubelet // of the kubelet that runs; nil while it has to be read
	stale      bool              // it has to be read again
	tree       *topology.Tree    // whose NUMA nodes these are; nil while they have to be read
	numa       []NUMANode
	before     v1alpha1.Kubelet  // the one that was read last
	complaints map[string]string // by subject, what is wrong now: it is logged once
}

// NewReader makes a Reader. It reads nothing yet.
func NewReader(config Config) *Reader {
	return &Reader{
		config: config, checkpoint: kubelet.NewCheckpointReader(config.KubeletDir), complaints: map[string]string{},
	}
}

// Restarted says that the kubelet has been started anew: its configuration can be another.
func (r *Reader) Restarted() { r.kubelet, r.tree = nil, nil }

// Recheck makes the next Read look again at what it else reads once for each start of the kubelet: a start
// can have been missed.
func (r *Reader) Recheck() { r.stale, r.tree = true, nil }

// Read reads everything but what the plugins have announced. What cannot be read is left out: the log says so
// once.
func (r *Reader) Read(ctx context.Context, tree *topology.Tree, resources []Resource) Facts {
	f := Facts{
		Tree: tree, Resources: resources, NUMANodes: r.numaNodes(tree),
		Kubelet: r.configuration(ctx),
	}
	checkpoint, err := r.checkpoint.Read()
	if errors.Is(err, fs.ErrNotExist) { // no pod has had a device yet
		err = nil
	}
	known := r.works("checkpoint", err)
	var living *holders.Pods
	if pods, told := r.pods(ctx); told { // after the checkpoint
		living, f.Exclusive = holders.OfKubelet(pods), exclusive(pods)
	}
	if known {
		f.Devices, f.Gone = held(checkpoint), gone(checkpoint, living)
	}
	if f.HasCPUs() {
		r.works(CPUStateFile, readState(r.config.KubeletDir, CPUStateFile, &f.CPUs))
	}
	if f.HasMemory() {
		r.works(MemoryStateFile, readState(r.config.KubeletDir, MemoryStateFile, &f.Memory))
	}
	return f
}

// numaNodes are the machine's. They are read once for each tree, and for each start of the kubelet, which
// looks at them then: that is two files for each CPU.
func (r *Reader) numaNodes(tree *topology.Tree) []NUMANode {
	if r.tree != tree {
		r.tree, r.numa = tree, readNUMA(r.config.Sys, tree.NUMANodes())
	}
	return r.numa
}

// configuration is the kubelet's. It is read until that works, and then once for each start of the kubelet,
// and for each Recheck. What the kubelet said itself stands until it is started anew, or says something else.
func (r *Reader) configuration(ctx context.Context) v1alpha1.Kubelet {
	if r.kubelet != nil && !r.stale {
		return *r.kubelet
	}
	read, err := r.config.Files.read()
	if r.config.Configz != nil {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		switch told, refused := ask(ctx, r.config.Configz); {
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
		return r.before // a kubelet that was started a moment ago does not answer yet
	}
	r.kubelet, r.before, r.stale = &read, read, false
	return read
}

// works reports whether there is no error, and logs one when it begins.
func (r *Reader) works(subject string, err error) bool {
	if err == nil {
		delete(r.complaints, subject)
		return true
	}
	if r.complaints[subject] != err.Error() {
		r.complaints[subject] = err.Error()
		r.config.Log.Warn(consequences[subject], "error", err)
	}
	return false
}

// consequences are what it means that something cannot be read.
var consequences = map[string]string{
	"checkpoint": "what pods hold is not published",
	"configuration": "the kubelet's policy is not published, so that no scheduler can tell what it will " +
		"refuse; name its file with --kubelet-config, or let it be asked with --kubelet-address",
	"configz":       "publish the kubelet's configuration as its file has it, without its flags",
	CPUStateFile:    "the CPUs that containers have are not published",
	MemoryStateFile: "the memory that containers have is not published",
}

func container(name string) Container {
	uid, name, _ := strings.Cut(name, "/")
	return Container{PodUID: uid, Name: name}
}
