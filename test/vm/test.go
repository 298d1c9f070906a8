package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// tester goes through the machines and keeps what it found.
type tester struct {
	*cache
	bin  string // for the result
	node *node
	rows []row
	pods atomic.Int64 // created so far
}

func (t *tester) podName() string { return fmt.Sprintf("pod-%d", t.pods.Add(1)) }

func (t *tester) add(r row) {
	t.rows = append(t.rows, r)
	verdict := "as it should be"
	if r.problem != "" {
		verdict = "PROBLEM: " + r.problem
	}
	words := slices.DeleteFunc([]string{r.scenario + ":", r.Kubelet(), r.Pairs(), r.note}, func(s string) bool { return s == "" })
	t.say("  %s, %s", strings.Join(words, " "), verdict)
	if err := t.write(); err != nil {
		t.say("  write the result: %v", err)
	}
}

// failed counts what is not as it should be.
func (t *tester) failed() error {
	failures := 0
	for _, r := range t.rows {
		if r.problem != "" {
			failures++
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d of %d results are not as they should be", failures, len(t.rows))
	}
	return nil
}

// all runs everything. What was found is written as it is found.
func (t *tester) all(ctx context.Context, o options) error {
	all := boots(o)
	if len(all) == 0 {
		return fmt.Errorf("there is no machine %q with %d VFs per PF", o.machine, o.vfs)
	}
	var k *cluster
	err := t.stage(ctx, "control plane", 5*time.Minute, func(ctx context.Context) (err error) {
		k, err = t.startCluster(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer k.stop()
	for _, m := range all {
		if err = t.boot(ctx, k, m, o); err != nil {
			break
		}
	}
	return errors.Join(err, t.failed())
}

// boot goes through all that is to be tried on one machine.
func (t *tester) boot(ctx context.Context, k *cluster, m machine, o options) error {
	t.node = &node{cluster: k, machine: m, phase: m.phases[0]}
	folder := t.path("run/" + m.name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	err := t.stage(ctx, "power on: "+t.node.title(), 20*time.Minute, func(ctx context.Context) (err error) {
		t.node.vm, err = t.powerOn(ctx, m, t.node.vfsPerPF, folder)
		return err
	})
	if t.node.vm != nil {
		defer t.node.vm.stop()
	}
	if err != nil {
		return err
	}
	defer t.node.collect(folder)
	if m.server != "" {
		if err := t.compareTree(ctx, m.server); err != nil {
			return err
		}
	}
	if err := t.walkThrough(ctx, m, "begin"); err != nil {
		return err
	}
	for i := range m.phases {
		if err := t.phase(ctx, o, m.phases[i+1:]); err != nil {
			return err
		}
	}
	if err := t.walkThrough(ctx, m, "end"); err != nil {
		return err
	}
	// The next machine is another node of the same name.
	for _, args := range [][]string{{"delete", "-k", "test/vm/deploy/" + m.deploy, "--wait=false"}, {"delete", "node", nodeName}} {
		if _, err := k.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// phase goes through the set-ups of the node's phase, and starts the node again for the next one, if there is one.
func (t *tester) phase(ctx context.Context, o options, later []phase) error {
	for _, s := range t.node.setups {
		if err := t.setup(ctx, s); err != nil {
			return err
		}
	}
	last := t.node.setups[len(t.node.setups)-1]
	if err := t.more(ctx, last, o); err != nil {
		return err
	}
	if len(later) == 0 {
		return nil
	}
	return t.stage(ctx, fmt.Sprintf("node reboot, with %d VFs per PF from then on", later[0].vfsPerPF), 15*time.Minute, func(ctx context.Context) error {
		return t.restart(ctx, last, later[0])
	})
}

// walkThrough is for the machine whose owner has only begun.
func (t *tester) walkThrough(ctx context.Context, m machine, part string) error {
	if !m.plain {
		return nil
	}
	return t.stage(ctx, "README, "+part, 20*time.Minute, func(ctx context.Context) error { return t.walk(ctx, part) })
}

func (t *tester) title(s setup) string { return t.node.title() + ": " + s.name }

// setup goes through the scenarios of one set-up.
func (t *tester) setup(ctx context.Context, s setup) error {
	if err := t.stage(ctx, "install: "+t.title(s), 10*time.Minute, func(ctx context.Context) error {
		return t.node.install(ctx, s.deploy)
	}); err != nil {
		return err
	}
	gone := func() error { return nil } // waits until the pod of the scenario before has gone, while the next one comes
	for _, c := range s.scenarios {
		if err := t.stage(ctx, c.name, 15*time.Minute, func(stage context.Context) error {
			name, err := t.try(stage, s, c)
			err = errors.Join(err, gone())
			gone = t.removing(ctx, name)
			return err
		}); err != nil {
			return err
		}
	}
	if err := gone(); err != nil {
		return err
	}
	if s.source != "" {
		if err := t.told(ctx, s); err != nil {
			return err
		}
	}
	return t.agreed(ctx, s, "after the scenarios")
}

// removing begins to remove a pod, and returns what waits until it is gone.
func (t *tester) removing(ctx context.Context, name string) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- t.node.remove(ctx, name) }()
	return func() error { return <-done }
}

// more is what the last set-up of a phase goes through beside its scenarios.
func (t *tester) more(ctx context.Context, s setup, o options) error {
	type step struct {
		name  string
		limit time.Duration
		do    func(context.Context) error
	}
	var steps []step
	if t.node.machine.example {
		steps = append(steps, step{t.node.machine.job, 10 * time.Minute, func(ctx context.Context) error { return t.example(ctx, s) }})
	}
	if t.node.thorough {
		steps = append(steps,
			step{"faults", time.Hour, func(ctx context.Context) error { return t.suffer(ctx, s, faults...) }},
			step{"random admissions", time.Hour, func(ctx context.Context) error { return t.random(ctx, s, o.admissions) }},
			step{"the stock plugins, and back", 10 * time.Minute, func(ctx context.Context) error { return t.swap(ctx, s) }},
			step{"a fault that lasts", 10 * time.Minute, func(ctx context.Context) error { return t.suffer(ctx, s, lostVF) }})
	}
	if t.node.multus {
		steps = append(steps, step{"Multus", 10 * time.Minute, func(ctx context.Context) error { return t.multus(ctx, s) }})
	}
	for _, step := range steps {
		if err := t.stage(ctx, step.name, step.limit, step.do); err != nil {
			return err
		}
	}
	return nil
}
