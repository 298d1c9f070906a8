package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// swap moves the node to the stand-in for the stock plugins and back to Tandem, as deployments/MIGRATE.md says. Pods of
// before have to live on each time, with their devices, and new ones have to get theirs.
func (t *tester) swap(ctx context.Context, s setup) error {
	if _, err := t.node.kubectl(ctx, "", "apply", "-k", "test/vm/deploy/stand-in"); err != nil {
		return err
	}
	ofTandem := t.podName()
	if _, err := t.node.create(ctx, ofTandem, pair(2)); err != nil {
		return err
	}
	stock := setup{scenarios: s.scenarios}
	away := move{"from Tandem to the stock plugins, then 1+1", "tandem.dev/node-", []string{standIn}, daemons, pair(1)}
	ofStock, err := t.moved(ctx, s, stock, away, ofTandem)
	if err != nil {
		return err
	}
	back := move{"from the stock plugins to Tandem, then 2+2", "tandem.dev/node=true", daemons, []string{standIn}, pair(2)}
	next, err := t.moved(ctx, s, s, back, ofTandem, ofStock)
	if err != nil {
		return err
	}
	_, err = t.node.kubectl(ctx, "", "delete", "-k", "test/vm/deploy/stand-in")
	return errors.Join(t.agreed(ctx, s, "after the stock plugins"), err, t.node.remove(ctx, ofTandem, ofStock, next))
}

// move is a label of the node by which some plugins come and others go.
type move struct {
	name, label string
	come, gone  []string // DaemonSets
	next        scenario // what is asked for then
}

// moved adds a row on one move, with the pod that is created then and is returned. Pods of before have to be what they were.
func (t *tester) moved(ctx context.Context, s, judged setup, m move, before ...string) (string, error) {
	start := time.Now()
	was, err := t.states(ctx, before)
	if err != nil {
		return "", err
	}
	if err := t.node.move(ctx, m); err != nil {
		return "", err
	}
	next, o, late, err := t.admit(ctx, judged, m.next)
	if err != nil {
		return "", err
	}
	r := row{setup: t.title(s), scenario: m.name, outcome: o, problem: judge(judged, m.next, o)}
	is, err := t.states(ctx, before)
	switch {
	case err != nil:
		return "", err
	case is != was:
		r.problem = fmt.Sprintf("the running pods were %s and are %s", was, is)
	default:
		r.note = join("of the running pods "+is, lateNote(late))
	}
	t.add(r)
	t.say("  the move took %.0f s", time.Since(start).Seconds())
	return next, nil
}

func (t *tester) states(ctx context.Context, pods []string) (string, error) {
	var list []string
	for _, pod := range pods {
		state, err := t.state(ctx, pod)
		if err != nil {
			return "", err
		}
		list = append(list, pod+" is "+state)
	}
	return strings.Join(list, ", "), nil
}

// move is steps 5 and 6 of deployments/MIGRATE.md.
func (n *node) move(ctx context.Context, m move) error {
	before, err := n.registrations(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"cordon", nodeName}, {"label", "--overwrite", "node", nodeName, m.label}} {
		if _, err := n.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if err := n.registeredAfter(ctx, before, m.come...); err != nil {
		return err
	}
	for _, daemonSet := range m.gone {
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
