package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// tester goes through the machines and keeps what it found.
type tester struct {
	*cache
	bin  string // for the result
	node *node
	rows []row
	pods int
}

func (t *tester) podName() string {
	t.pods++
	return fmt.Sprintf("pod-%d", t.pods)
}

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
	var k *cluster
	err := t.stage(ctx, "control plane", 5*time.Minute, func(ctx context.Context) (err error) {
		k, err = t.startCluster(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer k.stop()
	for _, setups := range machines(o.short) {
		if o.vfs != 0 && o.vfs != setups[0].vfsPerPF {
			continue
		}
		if err = t.machine(ctx, k, setups, o); err != nil {
			break
		}
	}
	return errors.Join(err, t.failed())
}

// machine is one boot.
func (t *tester) machine(ctx context.Context, k *cluster, setups []setup, o options) error {
	vfsPerPF := setups[0].vfsPerPF
	t.node = &node{cluster: k}
	err := t.stage(ctx, fmt.Sprintf("power on with %d VFs per PF", vfsPerPF), 20*time.Minute, func(ctx context.Context) (err error) {
		t.node.vm, err = t.powerOn(ctx, vfsPerPF)
		return err
	})
	if t.node.vm != nil {
		defer t.node.vm.stop()
	}
	if err != nil {
		return err
	}
	defer t.node.collect(t.path("run"))
	for i, s := range setups {
		if err := t.setup(ctx, s, i == 0, o); err != nil {
			return err
		}
	}
	// The next machine is another node of the same name.
	for _, args := range [][]string{{"delete", "-k", "test/vm/deploy/tandem", "--wait=false"}, {"delete", "node", nodeName}} {
		if _, err := k.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// setup goes through the scenarios of one set-up, and on the first of a machine through what takes longer.
func (t *tester) setup(ctx context.Context, s setup, first bool, o options) error {
	if err := t.stage(ctx, "install: "+s.title(), 10*time.Minute, func(ctx context.Context) error {
		return t.node.install(ctx, s.deploy, sockets*switchesPerSocket*s.vfsPerPF)
	}); err != nil {
		return err
	}
	for _, c := range s.scenarios {
		if err := t.stage(ctx, c.name, 5*time.Minute, func(ctx context.Context) error { return t.try(ctx, s, c) }); err != nil {
			return err
		}
	}
	if err := t.agreed(ctx, s, "after the scenarios"); err != nil {
		return err
	}
	if !first {
		return nil
	}
	if err := t.stage(ctx, shippedJob, 10*time.Minute, func(ctx context.Context) error { return t.example(ctx, s) }); err != nil {
		return err
	}
	if o.short || s.vfsPerPF == 1 {
		return nil
	}
	for _, f := range faults {
		if err := t.stage(ctx, f.name, 5*time.Minute, func(ctx context.Context) error { return t.suffer(ctx, s, f) }); err != nil {
			return err
		}
	}
	if err := t.stage(ctx, "random admissions", time.Hour, func(ctx context.Context) error { return t.random(ctx, s, o.admissions) }); err != nil {
		return err
	}
	return t.stage(ctx, reboot.name, 15*time.Minute, func(ctx context.Context) error { return t.restart(ctx, s) })
}
