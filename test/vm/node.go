package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// node is the machine in its cluster.
type node struct {
	*cluster
	*vm
	machine machine
	phase
}

func (n *node) vfs() int      { return n.machine.gpus() * n.vfsPerPF }
func (n *node) title() string { return fmt.Sprintf("%s, %d VFs per PF", n.machine.name, n.vfsPerPF) }

var daemons = []string{"tandem-gpu", "tandem-rdma"}

// standIn is the DaemonSet of deploy/stand-in.
const standIn = "stock"

// ready waits until the API server knows the node and it is ready.
func (n *node) ready(ctx context.Context) error {
	for _, condition := range []string{"create", "condition=Ready"} {
		if _, err := n.kubectl(ctx, "", "wait", "--for="+condition, "--timeout=5m", "node/"+nodeName); err != nil {
			return err
		}
	}
	return nil
}

// install applies one of the folders below deploy as a user would, and waits until both daemons offer their devices.
func (n *node) install(ctx context.Context, deploy string) error {
	if err := n.ready(ctx); err != nil {
		return err
	}
	registered, err := n.registrations(ctx)
	if err != nil {
		return err
	}
	before, err := n.generations(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"label", "--overwrite", "node", nodeName, "tandem.dev/node=true"},
		{"apply", "-k", "test/vm/deploy/" + deploy},
	} {
		if _, err := n.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	after, err := n.generations(ctx)
	if err != nil {
		return err
	}
	for _, daemon := range daemons {
		if before[daemon] != after[daemon] {
			continue // it is being replaced
		}
		if _, err := n.kubectl(ctx, "", "-n", "kube-system", "rollout", "restart", "daemonset/"+daemon); err != nil {
			return err
		}
	}
	return errors.Join(n.registeredAfter(ctx, registered, daemons...), n.offersAll(ctx))
}

// generations are those of the daemons' DaemonSets: a change of the ConfigMap alone makes no new one, and restarts nothing.
func (n *node) generations(ctx context.Context) (map[string]string, error) {
	output, err := n.kubectl(ctx, "", "-n", "kube-system", "get", "daemonsets", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.generation}{\"\\n\"}{end}")
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

// offers waits until the API server knows the node with so many devices.
func (n *node) offers(ctx context.Context, resource string, count int) error {
	path := fmt.Sprintf("{.status.allocatable.%s}", strings.ReplaceAll(resource, ".", `\.`))
	_, err := n.kubectl(ctx, "", "wait", "--timeout=5m", fmt.Sprintf("--for=jsonpath=%s=%d", path, count), "node/"+nodeName)
	return err
}

func (n *node) offersAll(ctx context.Context) error {
	return errors.Join(n.offers(ctx, n.machine.resource, n.machine.gpus()), n.offers(ctx, vfResource, n.vfs()))
}

// rollOut replaces both daemons at a time, as after a change.
func (n *node) rollOut(ctx context.Context) error {
	before, err := n.registrations(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"restart"}, {"status", "--timeout=5m"}} {
		for _, daemon := range daemons {
			if _, err := n.kubectl(ctx, "", append([]string{"-n", "kube-system", "rollout"}, append(args, "daemonset/"+daemon)...)...); err != nil {
				return err
			}
		}
	}
	return n.registeredAfter(ctx, before, daemons...)
}

// registrations are the log lines with which the plugins last said that the kubelet knows them, "" where there is none.
func (n *node) registrations(ctx context.Context) (map[string]string, error) {
	last := map[string]string{}
	for _, daemon := range append([]string{standIn}, daemons...) {
		line, err := n.run(ctx, "cat /var/log/pods/kube-system_"+daemon+"-*/*/*.log 2>/dev/null | grep 'msg=registered' | sort | tail -n 1")
		if err != nil {
			return nil, err
		}
		last[daemon] = line
	}
	return last, nil
}

// registeredAfter waits until the kubelet knows daemons anew.
func (n *node) registeredAfter(ctx context.Context, before map[string]string, which ...string) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		now, err := n.registrations(ctx)
		if err == nil && !slices.ContainsFunc(which, func(d string) bool { return now[d] == "" || now[d] == before[d] }) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the kubelet knows %s: %w", strings.Join(which, " and "), context.Cause(ctx))
		}
	}
}

// lateAnswers counts what the daemons say of answers that were not there in time. The logs of daemons that are no more are gone.
func (n *node) lateAnswers(ctx context.Context) (int, error) {
	output, err := n.run(ctx, "cat /var/log/pods/kube-system_tandem-*/*/*.log 2>/dev/null | grep -c -e 'no answer in time' -e DeadlineExceeded -e source=local; true")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(output))
}

// decisions counts the coordinator's decisions by the source that told who asks.
func (n *node) decisions(ctx context.Context) (map[string]int, error) {
	lines, err := n.run(ctx, "cat /var/log/pods/kube-system_tandem-*/*/*.log | grep -e msg=prefer | grep -e source=coordinator; true")
	if err != nil {
		return nil, err
	}
	return sources(lines), nil
}

// sources counts lines of a log by the first word of their reason.
func sources(lines string) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(lines) {
		_, reason, _ := strings.Cut(line, " reason=")
		source, _, _ := strings.Cut(strings.Trim(reason, `"`), ": ")
		count[source]++
	}
	return count
}

// holdings are owners by device, "namespace/pod/container" by "resource id".
type holdings map[string]string

// fromKubelet is what PodResources lists.
func (n *node) fromKubelet(ctx context.Context) (holdings, error) {
	output, err := n.run(ctx, "guest podresources")
	if err != nil {
		return nil, err
	}
	var list struct {
		Pods []struct {
			Name, Namespace string
			Containers      []struct {
				Name    string
				Devices []struct {
					Resource string   `json:"resource_name"`
					IDs      []string `json:"device_ids"`
				}
			}
		} `json:"pod_resources"`
	}
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		return nil, fmt.Errorf("read PodResources: %w: %s", err, output)
	}
	h := holdings{}
	for _, pod := range list.Pods {
		for _, container := range pod.Containers {
			for _, devices := range container.Devices {
				for _, id := range devices.IDs {
					h[devices.Resource+" "+id] = pod.Namespace + "/" + pod.Name + "/" + container.Name
				}
			}
		}
	}
	return h, nil
}

// fromLedger is what tandem status tells, and how many devices that can be used there are of each resource.
func (n *node) fromLedger(ctx context.Context) (holdings, map[string]int, error) {
	output, err := n.run(ctx, "tandem status -o json")
	if err != nil {
		return nil, nil, err
	}
	var status struct {
		Resources []struct {
			Name    string
			Devices []struct{ ID, State, Owner string }
		}
	}
	if err := json.Unmarshal([]byte(output), &status); err != nil {
		return nil, nil, fmt.Errorf("read tandem status: %w: %s", err, output)
	}
	h, count := holdings{}, map[string]int{}
	for _, resource := range status.Resources {
		for _, device := range resource.Devices {
			if !strings.Contains(device.State, "unhealthy") {
				count[resource.Name]++
			}
			if strings.HasPrefix(device.State, "allocated") {
				h[resource.Name+" "+device.ID] = device.Owner
			}
		}
	}
	return h, count, nil
}

// agree reports what PodResources, the ledger and the API server's node status do not agree on. The ledger learns from the
// kubelet's next question that a pod is gone, and may learn late who an owner is: both are no disagreement.
func (n *node) agree(ctx context.Context) error {
	kubelet, err := n.fromKubelet(ctx)
	if err != nil {
		return err
	}
	ledger, count, err := n.fromLedger(ctx)
	if err != nil {
		return err
	}
	running := map[string]bool{}
	for device, owner := range kubelet {
		running[owner] = true
		if known, ok := ledger[device]; !ok || known != "" && known != owner {
			return fmt.Errorf("PodResources says that %s is with %q, the ledger says %q", device, owner, known)
		}
	}
	for device, owner := range ledger {
		if kubelet[device] == "" && running[owner] {
			return fmt.Errorf("the ledger says that %s is with %s, PodResources does not", device, owner)
		}
	}
	output, err := n.kubectl(ctx, "", "get", "node", nodeName, "-o", "jsonpath={.status.allocatable}")
	if err != nil {
		return err
	}
	var allocatable map[string]string
	if err := json.Unmarshal([]byte(output), &allocatable); err != nil {
		return err
	}
	for resource, devices := range count {
		if allocatable[resource] != fmt.Sprint(devices) {
			return fmt.Errorf("the node has %s of %s to give, the ledger %d", allocatable[resource], resource, devices)
		}
	}
	return nil
}
