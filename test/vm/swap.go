package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// swap moves the node to the stand-in for the stock plugins and back to Tandem, as deployments/MIGRATE.md says. Pods of
// before have to live on each time, with their devices, and new ones have to get theirs.
func (t *tester) swap(ctx context.Context, s setup) error {
	if _, err := t.node.kubectl(ctx, "", "apply", "-k", "test/vm/deploy/stand-in"); err != nil {
		return err
	}
	ofTandem, ofStock, next := t.podName(), t.podName(), t.podName()
	if _, err := t.node.create(ctx, ofTandem, pair(2).asks); err != nil {
		return err
	}
	stock := setup{scenarios: s.scenarios}
	if err := t.moved(ctx, s, stock, "from Tandem to the stock plugins, then 1+1", "tandem.dev/node-", []string{standIn}, daemons, ofStock, pair(1), ofTandem); err != nil {
		return err
	}
	if err := t.moved(ctx, s, s, "from the stock plugins to Tandem, then 2+2", "tandem.dev/node=true", daemons, []string{standIn}, next, pair(2), ofTandem, ofStock); err != nil {
		return err
	}
	_, err := t.node.kubectl(ctx, "", "delete", "-k", "test/vm/deploy/stand-in")
	return errors.Join(t.agreed(ctx, s, "after the stock plugins"), err, t.node.remove(ctx, ofTandem, ofStock, next))
}

// moved adds a row on one move: the node gets a label, some plugins come and others go, a pod is created, and pods of before
// are still what they were.
func (t *tester) moved(ctx context.Context, s, judged setup, name, label string, come, gone []string, next string, then scenario, before ...string) error {
	start := time.Now()
	states := map[string]string{}
	for _, pod := range before {
		state, err := t.state(ctx, pod)
		if err != nil {
			return err
		}
		states[pod] = state
	}
	if err := t.node.move(ctx, label, come, gone); err != nil {
		return err
	}
	o, late, err := t.admit(ctx, next, judged, then)
	if err != nil {
		return err
	}
	r := row{setup: t.title(s), scenario: name, outcome: o, problem: judge(judged, then, o), note: join(fmt.Sprintf("%d pods of before live on", len(before)), lateNote(late))}
	for _, pod := range before {
		state, err := t.state(ctx, pod)
		if err != nil {
			return err
		}
		if state != states[pod] {
			r.problem = fmt.Sprintf("%s was %s and is %s", pod, states[pod], state)
		}
	}
	t.add(r)
	t.say("  the move took %.0f s", time.Since(start).Seconds())
	return nil
}

// move is steps 5 and 6 of deployments/MIGRATE.md.
func (n *node) move(ctx context.Context, label string, come, gone []string) error {
	before, err := n.registrations(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"cordon", nodeName}, {"label", "--overwrite", "node", nodeName, label}} {
		if _, err := n.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if err := n.registeredAfter(ctx, before, come...); err != nil {
		return err
	}
	for _, daemonSet := range gone {
		if _, err := n.kubectl(ctx, "", "-n", "kube-system", "wait", "--timeout=5m", "--for=jsonpath={.status.currentNumberScheduled}=0", "daemonset/"+daemonSet); err != nil {
			return err
		}
	}
	if err := n.offersAll(ctx); err != nil {
		return err
	}
	_, err = n.kubectl(ctx, "", "uncordon", nodeName)
	return err
}
