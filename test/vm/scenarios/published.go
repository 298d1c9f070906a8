// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// published is a node with a publication, and tandem-scheduler next to the default scheduler.
var published = setup{
	name:      "Tandem, published, with tandem-scheduler",
	deploy:    "published",
	tandem:    true,
	scheduler: true,
	scenarios: []scenario{sent(pair(4)), sent(pair(8))},
}

// sent returns a scenario with tandem-scheduler.
func sent(c scenario) scenario {
	c.scheduler = cluster.Scheduler
	c.name += " by tandem-scheduler"
	return c
}

// scheduled runs further tests of tandem-scheduler: a pod that the kubelet would refuse, and the node's
// publication.
func (t *tester) scheduled(ctx context.Context, s setup) error {
	return t.Stage(ctx, "a pod that waits for room", 15*time.Minute, func(ctx context.Context) error {
		return t.waited(ctx, s)
	})
}

// waited creates two pods that leave a GPU free on each socket. The kubelet refuses a pod of two pairs from
// the default scheduler; with tandem-scheduler it waits, and starts when one of the two pods is gone.
func (t *tester) waited(ctx context.Context, s setup) error {
	first, err := t.hold(ctx, sent(pair(3)))
	if err != nil {
		return err
	}
	second, err := t.hold(ctx, sent(pair(3)))
	if err != nil {
		return err
	}
	if _, err := t.try(ctx, s, refusedPair(2)); err != nil {
		return err
	}
	c := sent(pair(2))
	r := Row{Setup: t.title(s), Scenario: c.name + ": it waits, and starts when there is room"}
	start, pod := time.Now(), c.pod(t.podName())
	if err := t.node.Submit(ctx, pod); err != nil {
		return err
	}
	sentence, err := t.node.Waits(ctx, pod.Name)
	if err != nil {
		return err
	}
	if err := errors.Join(t.looked(ctx, s, 2), t.node.Remove(ctx, first.pod)); err != nil {
		return err
	}
	if r.outcome, err = t.node.See(ctx, pod, start); err != nil {
		return err
	}
	r.note, r.took = sentence, time.Since(start)
	const reason = "no NUMA node has 2 amd.com/gpu"
	if r.Problem = judge(s, c, r.outcome); r.Problem == "" && !strings.Contains(sentence, reason) {
		r.Problem = fmt.Sprintf("the pod waits without the words %q", reason)
	}
	t.add(r)
	return t.node.Remove(ctx, second.pod, pod.Name)
}

// looked adds a row on kubectl's output for the node with the given number of same-switch pairs left.
func (t *tester) looked(ctx context.Context, s setup, pairs int) error {
	r := Row{Setup: t.title(s), Scenario: fmt.Sprintf("kubectl get, with %d pairs left", pairs)}
	start := time.Now()
	if err := t.node.Left(ctx, pairs); err != nil {
		return err
	}
	table, err := t.node.Kubectl(ctx, "", "get", "ntopo", cluster.NodeName)
	if err != nil {
		return err
	}
	zones, err := t.zones(ctx)
	if err != nil {
		return err
	}
	shape := t.node.Shape
	heads := strings.Fields(strings.SplitN(table, "\n", 2)[0])
	want := []string{"NAME", "POLICY", "SWITCHES", "GPUS", "VFS", "PAIRS", "AGE"}
	if !slices.Equal(heads, want) {
		r.Problem = fmt.Sprintf("the columns are %v", heads)
	} else if !strings.Contains(table, "restricted") || zones["Node"] != 2 || zones["Switch"] != shape.GPUs() {
		r.Problem = fmt.Sprintf("zones %v and\n%s", zones, table)
	}
	r.note, r.took = strings.Join(strings.Fields(table)[len(heads):], " "), time.Since(start)
	t.add(r)
	return nil
}

// zones counts the zones of the node's NodeResourceTopology by type.
func (t *tester) zones(ctx context.Context) (map[string]int, error) {
	output, err := t.node.Kubectl(ctx, "", "get", "noderesourcetopologies", cluster.NodeName, "-o", "json")
	if err != nil {
		return nil, err
	}
	var topology struct {
		Zones []struct{ Type string }
	}
	if err := json.Unmarshal([]byte(output), &topology); err != nil {
		return nil, fmt.Errorf("read the NodeResourceTopology: %w", err)
	}
	count := map[string]int{}
	for _, zone := range topology.Zones {
		count[zone.Type]++
	}
	return count, nil
}
