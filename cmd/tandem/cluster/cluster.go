// SPDX-License-Identifier: Apache-2.0

// Package cluster asks the daemons of all nodes of a cluster: it starts the program tandem in their pods
// through the API server (pods/exec), with the rights of whoever asks. It needs no server of its own. A pod
// of anybody else is never asked, whatever it is labelled.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	_ "k8s.io/client-go/plugin/pkg/client/auth/oidc" // kubeconfigs name it
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// Options say which cluster is meant, and where in it Tandem's daemons are.
type options struct {
	Kubeconfig string // file; "" for where kubectl looks
	Context    string // of the kubeconfig; "" for its current one
	Namespace  string // of the pods that are asked about; "" for that of the context
	Daemons    string // namespace of Tandem's daemons; "" for the only one that has some
	Selector   string // labels of their pods
	// Timeout is how long a node, or the API server, may take to answer.
	Timeout time.Duration
}

// defaultSelector is the label by which the chart and the manifests mark the pods of the daemons.
const defaultSelector = "app.kubernetes.io/name in (tandem-gpu,tandem-rdma,tandem-dra)"

// cluster is a cluster, as the caller's rights show it.
type cluster struct {
	options options
	server  rest.Interface // of the core group
	exec    executor
}

// connect reads the kubeconfig. It asks nobody yet.
func connect(o options) (*cluster, error) {
	if o.Timeout <= 0 {
		return nil, cli.NewUsageError("--timeout %s: want more than 0", o.Timeout)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	overrides.Context.Namespace = o.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("there is none: set --kubeconfig or KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	o.Namespace, _, err = loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read namespace of kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1 // the number of questions at a time is limited here
	server, err := intent.NewClient(config, &corev1.Pod{}, &corev1.PodList{})
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return &cluster{options: o, server: server, exec: execRemotely(config, server)}, nil
}

// askDaemon runs a command of tandem on a node, in the pod of the first daemon that answers: all daemons of a
// node have the same answer. The command also gets the daemon's flags of these names ([daemon.flagsFor]).
// askDaemon returns the output of the command, and the daemon.
func (c *cluster) askDaemon(
	ctx context.Context, daemons []daemon, args []string, flags map[string]string, stdin []byte,
) (printed []byte, by daemon, err error) {
	var failed []string
	said := map[string]bool{} // all daemons of a node answer the same: once is enough
	running := 0
	for _, d := range daemons {
		if d.Trouble == "" {
			running++
		}
	}
	for _, d := range daemons {
		if d.Trouble != "" {
			failed = append(failed, d.describeTrouble())
			continue
		}
		what := command{args: slices.Concat([]string{"tandem"}, args, d.flagsFor(flags))}
		if stdin != nil {
			what.stdin = bytes.NewReader(stdin)
		}
		printed, err := c.exec.runTandem(ctx, d, c.options.Timeout/time.Duration(running), what)
		var exit *exitError
		switch {
		case err == nil:
			return printed, d, nil
		case errors.As(err, &exit) && len(printed) > 0: // a code that tells what was found
			return printed, d, err
		case exit == nil || exit.Said == "" || !said[exit.Said]:
			failed = append(failed, err.Error())
		}
		if exit != nil {
			said[exit.Said] = true
		}
	}
	return nil, daemon{}, errors.New(strings.Join(failed, "; "))
}

// askText is [cluster.askDaemon] for the output in a format, nil for none. The node colours a table, and this
// program shows the colours, if its own terminal has any.
func (c *cluster) askText(
	ctx context.Context, daemons []daemon, args []string, flags map[string]string, stdin []byte, format string,
) (*cli.Text, error) {
	args = append(args, "-o", format)
	if format == cli.AsTable {
		args = append(args, "--"+cli.Colour+"=always")
	}
	printed, _, err := c.askDaemon(ctx, daemons, args, flags, stdin)
	if len(printed) == 0 {
		return nil, cmp.Or(err, errSilent)
	}
	var text cli.Text
	fmt.Fprintf(&text, "%s", printed)
	return &text, err
}

// errSilent means that a node prints nothing, and that it has no error.
var errSilent = errors.New("the answer is empty")

// The programs of the device plugins.
const (
	gpuProgram  = "tandem-gpu"
	rdmaProgram = "tandem-rdma"
)

// withPods replaces the possible reasons in the notes of a status with the states of the daemons' pods, which
// the daemon that answers does not see.
func withPods(notes []string, daemons []daemon) []string {
	notes = slices.Clone(notes)
	for i, note := range notes {
		switch kind, devices, reasons, found := coordinator.CutUnoffered(note); {
		case !found:
		case kind == device.GPU:
			notes[i] = devices + gpuReason(devices, reasons, daemons)
		default:
			notes[i] = devices + vfReason(daemons)
		}
	}
	for _, d := range daemons {
		if text := d.describeTrouble(); d.Trouble != "" && !slices.ContainsFunc(notes, func(note string) bool {
			return strings.Contains(note, text)
		}) {
			notes = append(notes, text)
		}
	}
	return notes
}

// gpuReason returns the reason why tandem-gpu does not offer GPUs. The GPUs and the possible reasons are from
// the node's note.
func gpuReason(devices, reasons string, daemons []daemon) string {
	d, found := findProgram(daemons, gpuProgram)
	if !found || d.Trouble != "" {
		return describeAbsence(d, found, gpuProgram)
	}
	for _, m := range gpu.Makers {
		if vendor := d.Flags["vendor"]; vendor != m.Vendor && strings.Contains(devices, m.Title+"'s on PCI") {
			if _, named := gpu.MakerOf(vendor); named {
				return fmt.Sprintf("gpu.vendor is %s: set gpu.vendor=%s or auto", vendor, m.Vendor)
			}
		}
	}
	if _, waits, known := strings.Cut(reasons, " or waits for "); known {
		return "tandem-gpu waits for " + waits
	}
	return fmt.Sprintf("kubectl logs -n %s %s has the reason", d.Namespace, d.Pod)
}

// vfReason returns the reason why tandem-rdma offers no VF.
func vfReason(daemons []daemon) string {
	d, found := findProgram(daemons, rdmaProgram)
	if found && d.Trouble == "" {
		return "the configuration of tandem-rdma (config.json) selects no VF of this node"
	}
	return describeAbsence(d, found, rdmaProgram)
}

// describeAbsence returns the reason why a program does not run.
func describeAbsence(d daemon, found bool, program string) string {
	if !found {
		return "no pod of " + program + " is on this node"
	}
	return d.describeTrouble()
}

// describeTrouble returns the state of a daemon that does not run.
func (d daemon) describeTrouble() string {
	return fmt.Sprintf("%s/%s: %s", d.Namespace, d.Pod, d.Trouble)
}

// release is the DaemonSets of Tandem in one namespace.
//
// A user with the right to create pods can set the labels, the name and the owner reference of a daemon, and
// a user with the right to create DaemonSets the labels. A pod therefore counts only if created by a
// DaemonSet of the release with pods, and if the pod mounts a folder of the node, as each daemon does: Pod
// Security denies hostPath volumes to tenants, and a user with that right can access the node anyway. All
// DaemonSets are in the namespace named by the caller, or in the only namespace with such DaemonSets.
type release struct {
	namespace string
	sets      map[types.UID]bool
}

// findRelease returns the DaemonSets of Tandem.
func (c *cluster) findRelease(ctx context.Context) (release, error) {
	found, idle, err := c.daemonSets(ctx)
	if err != nil {
		return release{}, err
	}
	sets := map[string]map[types.UID]bool{}
	for _, set := range found {
		if sets[set.Namespace] == nil {
			sets[set.Namespace] = map[types.UID]bool{}
		}
		sets[set.Namespace][set.UID] = true
	}
	namespaces := slices.Sorted(maps.Keys(sets))
	switch {
	case len(namespaces) == 0 && idle:
		return release{}, fmt.Errorf("find Tandem's daemons: the DaemonSets in %s with pods labelled %s have no "+
			"pod: no node matches their node selector (is the label tandem.dev/node missing on the nodes?)",
			c.searchedPlace(), c.options.Selector)
	case len(namespaces) == 0:
		return release{}, fmt.Errorf("find Tandem's daemons: Tandem is not installed (no DaemonSet in %s has pods "+
			"labelled %s that mount a folder of the node); --tandem-namespace and --selector select other DaemonSets",
			c.searchedPlace(), c.options.Selector)
	case len(namespaces) > 1:
		return release{}, fmt.Errorf("find Tandem's daemons: DaemonSets with such pods are in the namespaces %s; "+
			"say with --tandem-namespace which of them Tandem is in", strings.Join(namespaces, ", "))
	}
	return release{namespaces[0], sets[namespaces[0]]}, nil
}

// searchedPlace returns the searched place, for people.
func (c *cluster) searchedPlace() string {
	if c.options.Daemons == "" {
		return "all namespaces"
	}
	return "namespace " + c.options.Daemons
}

// daemonSets returns the DaemonSets with pods that can be daemons, and whether there are such DaemonSets
// without a pod.
func (c *cluster) daemonSets(ctx context.Context) (sets []appsv1.DaemonSet, idle bool, err error) {
	selector, err := labels.Parse(c.options.Selector)
	if err != nil {
		return nil, false, fmt.Errorf("read selector: %w", err)
	}
	path := []string{"apis", "apps", "v1", "daemonsets"}
	if c.options.Daemons != "" {
		path = []string{"apis", "apps", "v1", "namespaces", c.options.Daemons, "daemonsets"}
	}
	answer, err := c.server.Get().AbsPath(path...).DoRaw(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("list DaemonSets of %s: %w", c.searchedPlace(), err)
	}
	var list appsv1.DaemonSetList
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, false, fmt.Errorf("list DaemonSets of %s: %w", c.searchedPlace(), err)
	}
	for _, set := range list.Items {
		switch template := &set.Spec.Template; {
		case !mountsNode(&template.Spec) || !selector.Matches(labels.Set(template.Labels)):
		case set.Status.CurrentNumberScheduled == 0:
			idle = true
		default:
			sets = append(sets, set)
		}
	}
	return sets, idle, nil
}

// hasMade reports whether a DaemonSet of the release has created a pod.
func (r release) hasMade(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String() &&
		pod.Namespace == r.namespace && r.sets[owner.UID] && mountsNode(&pod.Spec)
}

// mountsNode reports whether a pod mounts a folder of its node.
func mountsNode(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
}
