// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// Node is the machine in its cluster.
type Node struct {
	*Cluster
	*machine.VM
	Shape    machine.Shape
	VFsPerPF int

	recording *recording
}

// NewNode returns the node of a cluster before the machine starts.
func NewNode(k *Cluster, s machine.Shape, vfsPerPF int) *Node {
	n := &Node{Cluster: k, Shape: s, VFsPerPF: vfsPerPF}
	n.record()
	return n
}

// VFs returns the node's number of VFs.
func (n *Node) VFs() int { return n.Shape.GPUs() * n.VFsPerPF }

// Title names the node in results.
func (n *Node) Title() string { return fmt.Sprintf("%s, %d VFs per PF", n.Shape.Name, n.VFsPerPF) }

// Daemons are the DaemonSets of Tandem, and their programs.
var Daemons = []string{"tandem-gpu", "tandem-rdma"}

// Labels for the mode of a node (docs/dra.md).
const (
	ModePlugins = "tandem.dev/mode=device-plugin"
	ModeDRA     = "tandem.dev/mode=dra"
)

// StandIn is the DaemonSet of deploy/stand-in.
const StandIn = "stock"

// ready waits until the node is ready.
func (n *Node) ready(ctx context.Context) error {
	return n.await(ctx, "node/"+NodeName, "create", "condition=Ready")
}

// Install applies one of the folders below deploy like a user, and waits until both daemons offer their
// devices. The labels come last, because on a node in DRA mode they start pods of the DaemonSets as they are.
func (n *Node) Install(ctx context.Context, deploy string) error {
	if err := n.ready(ctx); err != nil {
		return err
	}
	registered, err := n.Registrations(ctx)
	if err != nil {
		return err
	}
	before, err := n.generations(ctx)
	if err != nil {
		return err
	}
	if err := n.KubectlEach(ctx, []string{"apply", "-k", "test/vm/deploy/" + deploy},
		[]string{"label", "--overwrite", "node", NodeName, "tandem.dev/node=true", ModePlugins}); err != nil {
		return err
	}
	after, err := n.generations(ctx)
	if err != nil {
		return err
	}
	same := slices.DeleteFunc(slices.Clone(Daemons), func(d string) bool { return before[d] != after[d] })
	if err := n.rollout(ctx, same, "restart"); err != nil {
		return err
	}
	return errors.Join(n.rolledOut(ctx, registered, Daemons), n.OffersAll(ctx))
}

// generations returns the generations of the DaemonSets: a change of the ConfigMap alone changes none, and
// restarts nothing.
func (n *Node) generations(ctx context.Context) (map[string]string, error) {
	output, err := n.Kubectl(ctx, "", "-n", "kube-system", "get", "daemonsets",
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.generation}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	generations := map[string]string{}
	for line := range strings.Lines(output) {
		name, generation, _ := strings.Cut(strings.TrimSpace(line), " ")
		generations[name] = generation
	}
	return generations, nil
}

// Offers waits until the node has the given number of devices.
func (n *Node) Offers(ctx context.Context, resource string, count int) error {
	path := fmt.Sprintf("{.status.allocatable.%s}", strings.ReplaceAll(resource, ".", `\.`))
	return n.await(ctx, "node/"+NodeName, fmt.Sprintf("jsonpath=%s=%d", path, count))
}

// OffersAll waits until the API server knows the node with all its GPUs and VFs.
func (n *Node) OffersAll(ctx context.Context) error {
	return errors.Join(n.Offers(ctx, n.Shape.Resource, n.Shape.GPUs()), n.Offers(ctx, VFResource, n.VFs()))
}

// RollOut replaces daemons at a time, as after a change.
func (n *Node) RollOut(ctx context.Context, daemons ...string) error {
	before, err := n.Registrations(ctx)
	if err != nil {
		return err
	}
	if err := n.rollout(ctx, daemons, "restart"); err != nil {
		return err
	}
	return n.rolledOut(ctx, before, daemons)
}

// rolledOut waits until all pods of the daemons are of the DaemonSets' present version, and have registered.
// A pod of the version before may register as well, and work on for half a minute: Linux drops a SIGTERM for
// the first process of a PID namespace that has no handler yet (kill(2)).
func (n *Node) rolledOut(ctx context.Context, before map[string]string, daemons []string) error {
	if err := n.rollout(ctx, daemons, "status", "--timeout=5m"); err != nil {
		return err
	}
	return n.RegisteredAfter(ctx, before, daemons...)
}

// rollout runs a command of "kubectl rollout" for each daemon.
func (n *Node) rollout(ctx context.Context, daemons []string, command ...string) error {
	for _, daemon := range daemons {
		args := slices.Concat([]string{"-n", "kube-system", "rollout"}, command, []string{"daemonset/" + daemon})
		if _, err := n.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// Registrations returns the last log lines of the plugins and the driver about their registration, "" for
// none.
func (n *Node) Registrations(ctx context.Context) (map[string]string, error) {
	daemons := slices.Concat([]string{StandIn, Driver}, Daemons)
	output, err := n.Run(ctx, "for daemon in "+strings.Join(daemons, " ")+`; do
		last=$(cat /var/log/pods/*_$daemon-*/*/*.log 2>/dev/null |
			grep -e 'msg=registered' -e 'msg="registered with the kubelet"' | sort | tail -n 1)
		echo "$daemon $last"
	done`)
	if err != nil {
		return nil, err
	}
	last := map[string]string{}
	for line := range strings.Lines(output) {
		daemon, registration, _ := strings.Cut(strings.TrimSpace(line), " ")
		last[daemon] = registration
	}
	return last, nil
}

// RegisteredAfter waits until daemons have registered again.
func (n *Node) RegisteredAfter(ctx context.Context, before map[string]string, which ...string) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		now, err := n.Registrations(ctx)
		if err == nil &&
			!slices.ContainsFunc(which, func(d string) bool { return now[d] == "" || now[d] == before[d] }) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the kubelet knows %s: %w", strings.Join(which, " and "), context.Cause(ctx))
		}
	}
}

// LateAnswers counts the log lines about late answers. The logs of deleted daemons are gone.
func (n *Node) LateAnswers(ctx context.Context) (int, error) {
	output, err := n.Run(ctx, "cat /var/log/pods/*/*/*.log 2>/dev/null |"+
		" grep -c -e 'no answer in time' -e DeadlineExceeded -e source=local; true")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(output))
}

// Decisions counts the coordinator's decisions by the source that identified the container.
func (n *Node) Decisions(ctx context.Context) (map[string]int, error) {
	lines, err := n.Run(ctx, "cat /var/log/pods/*/*/*.log 2>/dev/null |"+
		" grep -e msg=preferred | grep -e source=coordinator; true")
	if err != nil {
		return nil, err
	}
	return sources(lines), nil
}

var toldBy = regexp.MustCompile(`told by ([a-z-]+)`)

// sources counts log lines by the source in their reason, "" for none.
func sources(lines string) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(lines) {
		source := ""
		if found := toldBy.FindStringSubmatch(line); found != nil {
			source = found[1]
		}
		count[source]++
	}
	return count
}
