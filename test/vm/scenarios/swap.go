package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// swap moves the node to the stand-in for the stock plugins and back to Tandem, as docs/deployers.md
// says. Pods of before have to live on each time, with their devices, and new ones have to get theirs.
func (t *tester) swap(ctx context.Context, s setup) error {
	if _, err := t.node.Kubectl(ctx, "", "apply", "-k", "test/vm/deploy/stand-in"); err != nil {
		return err
	}
	ofTandem := t.podName()
	if _, err := t.node.Create(ctx, pair(2).pod(ofTandem)); err != nil {
		return err
	}
	stock := setup{scenarios: s.scenarios}
	standIn := []string{cluster.StandIn}
	away := move{
		"from Tandem to the stock plugins, then 1+1", "tandem.dev/node-", standIn, cluster.Daemons, pair(1),
	}
	ofStock, err := t.moved(ctx, s, stock, away, ofTandem)
	if err != nil {
		return err
	}
	back := move{
		"from the stock plugins to Tandem, then 2+2", "tandem.dev/node=true", cluster.Daemons, standIn, pair(2),
	}
	next, err := t.moved(ctx, s, s, back, ofTandem, ofStock)
	if err != nil {
		return err
	}
	_, err = t.node.Kubectl(ctx, "", "delete", "-k", "test/vm/deploy/stand-in")
	return errors.Join(
		t.agreed(ctx, s, "after the stock plugins"), err, t.node.Remove(ctx, ofTandem, ofStock, next))
}

// move is a label of the node by which some plugins come and others go.
type move struct {
	name, label string
	come, gone  []string // DaemonSets
	next        scenario // what is asked for then
}

// moved adds a row on one move, with the pod that is created then and is returned. Pods of before have to be
// what they were.
func (t *tester) moved(ctx context.Context, s, judged setup, m move, before ...string) (string, error) {
	start := time.Now()
	was, err := t.states(ctx, before)
	if err != nil {
		return "", err
	}
	if err := t.move(ctx, m); err != nil {
		return "", err
	}
	next, o, late, err := t.admit(ctx, judged, m.next)
	if err != nil {
		return "", err
	}
	r := Row{Setup: t.title(s), Scenario: m.name, outcome: o, Problem: judge(judged, m.next, o)}
	is, err := t.states(ctx, before)
	switch {
	case err != nil:
		return "", err
	case is != was:
		r.Problem = fmt.Sprintf("the running pods were %s and are %s", was, is)
	default:
		r.note = join("of the running pods "+is, lateNote(late))
	}
	t.add(r)
	t.Say("  the move took %.0f s", time.Since(start).Seconds())
	return next, nil
}

func (t *tester) states(ctx context.Context, pods []string) (string, error) {
	var list []string
	for _, pod := range pods {
		state, err := t.node.State(ctx, pod)
		if err != nil {
			return "", err
		}
		list = append(list, pod+" is "+state)
	}
	return strings.Join(list, ", "), nil
}

// move is steps 5 and 6 of docs/deployers.md.
func (t *tester) move(ctx context.Context, m move) error {
	before, err := t.node.Registrations(ctx)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"cordon", cluster.NodeName}, {"label", "--overwrite", "node", cluster.NodeName, m.label},
	} {
		if _, err := t.node.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if err := t.node.RegisteredAfter(ctx, before, m.come...); err != nil {
		return err
	}
	for _, daemonSet := range m.gone {
		if _, err := t.node.Kubectl(ctx, "", "-n", "kube-system", "wait", "--timeout=5m",
			"--for=jsonpath={.status.currentNumberScheduled}=0", "daemonset/"+daemonSet); err != nil {
			return err
		}
	}
	if err := t.node.OffersAll(ctx); err != nil {
		return err
	}
	_, err = t.node.Kubectl(ctx, "", "uncordon", cluster.NodeName)
	return err
}
