// SPDX-License-Identifier: Apache-2.0

// Package scenarios has the tests on machines of a cluster: pods, faults, installations, and a new user's way
// through the documents.
package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/test/vm/machine"
)

// Run runs all selected tests and returns an error for failures. It calls report with all rows so far after
// each result.
func Run(ctx context.Context, c *build.Cache, o Options, report func([]Row) error) error {
	all := boots(o)
	if len(all) == 0 {
		return fmt.Errorf("there is no machine %q with %d VFs per PF and a set-up %q",
			o.Machine, o.VFs, o.Setup)
	}
	var k *cluster.Cluster
	err := c.Stage(ctx, "control plane", 5*time.Minute, func(ctx context.Context) (err error) {
		k, err = cluster.Start(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	defer k.Stop()
	t := &tester{Cache: c, report: report}
	for _, b := range all {
		if err = t.boot(ctx, k, b, o); err != nil {
			break
		}
	}
	return errors.Join(err, t.failed())
}

// boot runs all tests of one machine, or a shell.
func (t *tester) boot(ctx context.Context, k *cluster.Cluster, b boot, o Options) error {
	settings := machine.Settings{
		VFsPerPF: b.phases[0].vfsPerPF, PlainKubelet: b.plain, SharedRDMA: b.traffic(),
	}
	t.node = cluster.NewNode(k, b.Shape, settings.VFsPerPF)
	folder := t.Path("run/" + b.Name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	err := t.Stage(ctx, "power on: "+t.node.Title(), 20*time.Minute, func(ctx context.Context) (err error) {
		t.node.VM, err = machine.PowerOn(ctx, t.Cache, b.Shape, settings, folder)
		return err
	})
	if t.node.VM != nil {
		defer t.node.VM.Stop()
	}
	if err != nil {
		return err
	}
	defer t.node.Collect(folder)
	if o.Shell {
		return t.shell(ctx)
	}
	if b.Server != "" {
		if err := t.compareTree(ctx, b.Server); err != nil {
			return err
		}
	}
	for _, part := range []string{"replace", "begin"} {
		if err := t.walkThrough(ctx, b, part); err != nil {
			return err
		}
	}
	for i := range b.phases {
		if err := t.phase(ctx, b, b.phases[i:], o.Admissions); err != nil {
			return err
		}
	}
	if err := t.walkThrough(ctx, b, "end"); err != nil {
		return err
	}
	// The next machine is another node of the same name.
	return k.KubectlEach(ctx,
		[]string{"delete", "-k", "test/vm/deploy/" + b.deploy, "--wait=false", "--ignore-not-found"},
		[]string{"delete", "node", cluster.NodeName})
}

// compareTree adds a row that compares the places of the machine's GPUs and NICs with those of the recorded
// server: addresses, bridges and NUMA nodes.
func (t *tester) compareTree(ctx context.Context, server string) error {
	start := time.Now()
	got, err := t.node.Places(ctx)
	if err != nil {
		return err
	}
	want, err := machine.ServerPlaces(server)
	if err != nil {
		return err
	}
	r := Row{
		Setup: t.node.Title(), Scenario: "the tree is that of " + server,
		took: time.Since(start), note: fmt.Sprintf("%d GPUs and NICs", len(got)),
	}
	if !slices.Equal(got, want) {
		r.Problem = fmt.Sprintf("there are %s, want %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
	t.add(r)
	return nil
}

// phase runs the set-ups of the first remaining phase, and reboots the node for the next one, if any.
func (t *tester) phase(ctx context.Context, b boot, left []phase, admissions int) error {
	p := left[0]
	if len(p.setups) == 0 {
		return nil
	}
	for _, s := range p.setups {
		if err := t.setup(ctx, s); err != nil {
			return err
		}
	}
	last := p.setups[len(p.setups)-1]
	if err := t.more(ctx, b, p, last, admissions); err != nil {
		return err
	}
	if err := t.judgeHistory(); err != nil {
		return err
	}
	if len(left) == 1 {
		return nil
	}
	vfsPerPF := left[1].vfsPerPF
	name := fmt.Sprintf("node reboot, with %d VFs per PF from then on", vfsPerPF)
	return t.Stage(ctx, name, 15*time.Minute, func(ctx context.Context) error {
		return t.restart(ctx, last, vfsPerPF)
	})
}

// walkThrough runs the walk on a machine with an unconfigured kubelet.
func (t *tester) walkThrough(ctx context.Context, b boot, part string) error {
	if !b.plain {
		return nil
	}
	walk := func(ctx context.Context) error { return t.walk(ctx, part) }
	return t.Stage(ctx, "the documents, "+part, 20*time.Minute, walk)
}

// setup runs the scenarios of one set-up.
func (t *tester) setup(ctx context.Context, s setup) error {
	if err := t.install(ctx, s); err != nil {
		return err
	}
	if s.scheduler {
		stop, err := t.node.StartScheduler(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := t.scenarios(ctx, s); err != nil {
		return err
	}
	if s.scheduler {
		if err := t.scheduled(ctx, s); err != nil {
			return err
		}
	}
	if s.source != "" {
		if err := t.told(ctx, s); err != nil {
			return err
		}
	}
	if err := t.agreed(ctx, s, "after the scenarios"); err != nil {
		return err
	}
	if !s.driver {
		return nil
	}
	if err := t.beyondScenarios(ctx, s); err != nil {
		return err
	}
	return t.Stage(ctx, "the driver goes", 10*time.Minute, func(ctx context.Context) error {
		return t.removed(ctx, s)
	})
}

// install configures the node for a set-up.
func (t *tester) install(ctx context.Context, s setup) error {
	if s.driver {
		return t.intoDRA(ctx, s)
	}
	return t.Stage(ctx, "install: "+t.title(s), 10*time.Minute, func(ctx context.Context) error {
		return t.node.Install(ctx, s.deploy)
	})
}

// scenarios runs the scenarios of a set-up, one after the other.
func (t *tester) scenarios(ctx context.Context, s setup) error {
	// waits until the pod of the previous scenario is gone, while the next one starts
	gone := func() error { return nil }
	for _, c := range s.scenarios {
		if err := t.Stage(ctx, c.name, 15*time.Minute, func(stage context.Context) error {
			name, err := t.try(stage, s, c)
			err = errors.Join(err, gone())
			gone = t.removing(ctx, name)
			return err
		}); err != nil {
			return err
		}
	}
	return gone()
}

// more runs the further tests of a phase's last set-up.
func (t *tester) more(ctx context.Context, b boot, p phase, s setup, admissions int) error {
	for _, part := range []struct {
		chosen bool
		name   string
		limit  time.Duration
		do     func(context.Context) error
	}{
		{b.example, b.job, 10 * time.Minute, func(ctx context.Context) error { return t.example(ctx, s, b.job) }},
		{p.thorough, "faults", time.Hour,
			func(ctx context.Context) error { return t.suffer(ctx, s, faults...) }},
		{p.thorough, "random admissions", time.Hour,
			func(ctx context.Context) error { return t.random(ctx, s, admissions) }},
		{p.thorough, "the stock plugins, and back", 10 * time.Minute,
			func(ctx context.Context) error { return t.swap(ctx, s) }},
		{p.thorough, "a fault that lasts", 10 * time.Minute,
			func(ctx context.Context) error { return t.suffer(ctx, s, lostVF) }},
		{p.upgrade, "the version before, and back", time.Hour,
			func(ctx context.Context) error { return t.upgrade(ctx, s) }},
		{p.multus, "Multus", 10 * time.Minute, func(ctx context.Context) error { return t.multus(ctx, s) }},
		{p.traffic, "RDMA traffic", 30 * time.Minute, func(ctx context.Context) error { return t.traffic(ctx, s) }},
	} {
		if !part.chosen {
			continue
		}
		if err := t.Stage(ctx, part.name, part.limit, part.do); err != nil {
			return err
		}
	}
	return nil
}
