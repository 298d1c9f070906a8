// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// ErrUnread means that the devices of pods were never read. Then no device is known to be free.
var ErrUnread = errors.New("devices of pods are not known")

// Facts are what is published of a node at one moment: the specification of its NodeTopology, and what other
// objects have besides. Facts are immutable.
type Facts struct {
	Spec v1alpha1.Spec // without the kubelet's version, which the Node has

	Tree      *topology.Tree     // for the models of GPUs
	Resources []*device.Resource // as announced: also equal links, which Spec lacks
	// NUMANodes are those of Spec, with all CPUs and memory: in Spec a node has those of a static manager alone.
	NUMANodes []v1alpha1.NUMANode
	Enforced  bool      // the annotations of pods are
	Gone      Gone      // pods in the checkpoint that no longer hold anything
	Exclusive Exclusive // among the pods that the kubelet lists
	// CPUs and Memory are those of a static CPU manager and memory manager, with their containers. A manager is
	// not read if its policy is another, and if its file could never be read.
	CPUs   kubelet.Reading[kubelet.CPUState]
	Memory kubelet.Reading[kubelet.MemoryState]

	// Unread is the reason for unknown devices of pods, an ErrUnread; nil if known.
	Unread error
	// Stale is the reason for assignments of an earlier time, or for a static manager that was never read; nil
	// if all are current.
	Stale error
}

// cpuStatic and memoryStatic are the policies under which containers get exclusive CPUs and memory.
const (
	cpuStatic    = "static"
	memoryStatic = "Static"
)

// memTotal is a line of a node's meminfo (node_read_meminfo in drivers/base/node.c).
var memTotal = regexp.MustCompile(`(?m)^Node \d+ MemTotal: +(\d+) kB$`)

// readNUMA reads the NUMA nodes of a tree (Documentation/ABI/stable/sysfs-devices-node). The nodes have what
// was read in spite of an error. A missing file is no error: a kernel without the file has no such fact.
func readNUMA(sys fs.FS, numbers []int) (nodes []v1alpha1.NUMANode, err error) {
	cpus, err := topology.CPUs(sys)
	failed := []error{err}
	read := func(format string, args ...any) string {
		name := fmt.Sprintf(format, args...)
		content, err := fs.ReadFile(sys, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("read NUMA nodes: %w", err))
		}
		return strings.TrimSpace(string(content))
	}
	for _, n := range model.ReadNUMANodes(sys, numbers) {
		node := v1alpha1.NUMANode{
			Number: n.Number, Distances: n.Distances, CPUs: v1alpha1.Set(cpus[n.Number].String()),
		}
		memory := read("devices/system/node/node%d/meminfo", n.Number)
		if found := memTotal.FindStringSubmatch(memory); found != nil {
			kilobytes, _ := strconv.ParseUint(found[1], 10, 54) // digits
			node.Memory = map[string]v1alpha1.Memory{"memory": {Total: kilobytes * 1024}}
		}
		var socket int
		node.Cores, socket = readCores(read, cpus[n.Number])
		if socket >= 0 && socket != n.Number {
			node.Socket = new(socket)
		}
		nodes = append(nodes, node)
	}
	return nodes, errors.Join(failed...)
}

// readCores returns the CPUs of each core with several CPUs in a NUMA node, by their lowest CPU, and the
// socket of the CPUs (Documentation/ABI/stable/sysfs-devices-system-cpu), -1 if it is unknown or if there are
// several.
func readCores(
	read func(format string, args ...any) string, cpus topology.CPUSet,
) (cores []v1alpha1.Set, socket int) {
	const folder = "devices/system/cpu/cpu%d/topology/"
	socket = -1
	for i, cpu := range slices.Sorted(maps.Keys(cpus)) {
		on, err := strconv.Atoi(read(folder+"physical_package_id", cpu))
		if err != nil || i > 0 && on != socket {
			on = -1
		}
		socket = on
		siblings, err := topology.ParseCPUSet(read(folder+"thread_siblings_list", cpu))
		if err == nil && len(siblings) > 1 && slices.Min(slices.Collect(maps.Keys(siblings))) == cpu {
			cores = append(cores, v1alpha1.Set(siblings.String()))
		}
	}
	return cores, socket
}

// askTimeout limits the request for the kubelet's configuration.
const askTimeout = 5 * time.Second

// Reader reads facts repeatedly. It is not safe for concurrent use.
type Reader struct {
	config     Config
	assigned   assignments
	kubelet    *model.Kubelet // of the running kubelet; nil if unknown
	stale      bool           // the configuration must be read again
	tree       *topology.Tree // the tree of the NUMA nodes; nil if they must be read again
	numa       []v1alpha1.NUMANode
	before     model.Kubelet               // the last configuration
	complaints map[string]system.Complaint // by subject
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(config Config) *Reader {
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

// Read reads all facts besides the announcements of the plugins. Errors are logged once.
func (r *Reader) Read(ctx context.Context, announced admission.Announced) Facts {
	f := Facts{
		Tree: announced.Tree, Resources: announced.Resources, NUMANodes: r.numaNodes(announced.Tree),
		Spec: v1alpha1.Spec{Kubelet: r.readConfiguration(ctx)},
	}
	list := func(each func(*corev1.Pod)) bool { return r.listPods(ctx, each) }
	devices, attempts := r.assigned.readAll(r.config.KubeletDir, list, announced.Before, &f)
	for _, a := range attempts {
		if !r.isRead(a.subject, a.err) {
			f.Stale = errors.Join(f.Stale, a.err)
		}
	}
	f.Spec = BuildSpec(f, devices)
	return f
}

// listPods calls each with the kubelet's pods, which include all running pods of an earlier checkpoint. It
// returns false if the kubelet does not list pods, which is no error: kubelets before 1.37 cannot.
func (r *Reader) listPods(ctx context.Context, each func(*corev1.Pod)) (told bool) {
	if r.config.Pods == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.config.Pods(ctx, each) == nil
}

// numaNodes returns the machine's NUMA nodes. It reads them, two files per CPU, once per tree and per start
// of the kubelet, because the kubelet reads them at its start, and again after an error.
func (r *Reader) numaNodes(tree *topology.Tree) []v1alpha1.NUMANode {
	if r.tree == tree {
		return r.numa
	}
	numa, err := readNUMA(r.config.Sys, tree.NUMANodes())
	r.numa = numa
	if r.isRead("NUMA nodes", err) {
		r.tree = tree
	}
	return r.numa
}

// readConfiguration returns the kubelet's configuration. It reads the configuration once per start of the
// kubelet, after each Recheck, and until a read succeeds. The kubelet's own answer stays valid until a
// restart or another answer.
func (r *Reader) readConfiguration(ctx context.Context) model.Kubelet {
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
			r.isRead("configz", refused)
			if r.kubelet != nil {
				return *r.kubelet
			}
			return read
		}
	}
	if !r.isRead("configuration", err) {
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

// isRead reports whether err is nil, and logs a new error.
func (r *Reader) isRead(subject string, err error) bool {
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
