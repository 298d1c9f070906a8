// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// byDriver is a node in DRA mode, set up as in docs/dra.md.
var byDriver = setup{
	name:   "Tandem, by tandem-dra",
	driver: true,
	tandem: true,
	scenarios: []scenario{
		asked(4, cluster.ByTemplate), asked(8, cluster.ByTemplate),
		asked(4, cluster.ByPair), asked(8, cluster.ByPair),
		asked(4, cluster.ByResources), // an unchanged pod
	},
}

// asked returns a pod with n pairs, requested in one of the ways of DRA mode.
func asked(n int, way cluster.Way) scenario {
	c := pair(n)
	c.asks[0].Way = way
	c.name += map[cluster.Way]string{
		cluster.ByResources: ", unchanged",
		cluster.ByTemplate:  " by a claim",
		cluster.ByPair:      " by tandem.dev/pair",
	}[way]
	return c
}

// intoDRA moves the node from the device plugins to DRA mode, back, and to DRA mode again, as in docs/dra.md.
// Existing pods must survive each move with their devices, and new ones must get other devices.
func (t *tester) intoDRA(ctx context.Context, s setup) error {
	if err := t.Stage(ctx, "install both modes: "+t.title(s), 10*time.Minute, func(ctx context.Context) error {
		return errors.Join(t.node.Install(ctx, "device-plugin"), t.node.ApplyDriver(ctx, "dra"))
	}); err != nil {
		return err
	}
	toDRA := move{
		"from the device plugins to mode dra, then 4+4 by a claim", cluster.ModeDRA,
		[]string{cluster.Driver}, cluster.Daemons, t.node.Publishes, asked(4, cluster.ByTemplate),
	}
	// The devices of the claim are unhealthy for the kubelet.
	back := move{
		"from mode dra to the device plugins, then 2+2", cluster.ModePlugins,
		cluster.Daemons, []string{cluster.Driver}, t.offersButClaimed(4), pair(2),
	}
	var ofPlugins, ofDriver, next holder
	for _, stage := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"to mode dra", func(ctx context.Context) (err error) {
			if ofPlugins, err = t.hold(ctx, pair(2)); err != nil {
				return err
			}
			if ofDriver, err = t.moved(ctx, s, s, toDRA, ofPlugins); err != nil {
				return err
			}
			return t.agreed(ctx, s, "with a claim")
		}},
		{"back to the device plugins", func(ctx context.Context) (err error) {
			next, err = t.moved(ctx, s, s, back, ofPlugins, ofDriver)
			return err
		}},
		{"the claim is taken back", func(ctx context.Context) error { return t.drained(ctx, s, ofDriver) }},
		{"to mode dra again", func(ctx context.Context) error {
			// The driver learns the names of the pods while the pods live. Before 1.37 it can learn the end of other
			// pods only from the kubelet's checkpoint, some five minutes later.
			return errors.Join(t.node.ApplyDriver(ctx, "dra"), t.move(ctx, toDRA),
				t.node.Remove(ctx, ofPlugins.pod, next.pod), t.node.RestartKubelet(ctx))
		}},
	} {
		if err := t.Stage(ctx, stage.name, 15*time.Minute, stage.do); err != nil {
			return err
		}
	}
	return nil
}

// offersButClaimed waits until the node has all devices except those of the claims' pairs.
func (t *tester) offersButClaimed(pairs int) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(t.node.Offers(ctx, t.node.Shape.Resource, t.node.Shape.GPUs()-pairs),
			t.node.Offers(ctx, cluster.VFResource, t.node.VFs()-pairs))
	}
}

// drained adds a row on the end of a pod with a claim on a node in device plugin mode: the driver unprepares
// the claim and does nothing else, and the plugins have all devices again.
func (t *tester) drained(ctx context.Context, s setup, h holder) error {
	start := time.Now()
	if err := t.node.ApplyDriver(ctx, "drain"); err != nil {
		return err
	}
	r := Row{Setup: t.title(s), Scenario: "a pod with a claim ends in the mode of device plugins"}
	if err := errors.Join(t.node.Remove(ctx, h.pod), t.node.OffersAll(ctx)); err != nil {
		r.Problem = err.Error()
	} else {
		r.note = fmt.Sprintf("%s is gone, and all devices are offered", h.pod)
	}
	r.took = time.Since(start)
	t.add(r)
	return ctx.Err()
}

// beyondScenarios runs further tests of DRA mode: faults under a pod, and a reboot.
func (t *tester) beyondScenarios(ctx context.Context, s setup) error {
	if err := t.suffer(ctx, s, driverFaults...); err != nil {
		return err
	}
	return t.Stage(ctx, "node reboot in mode dra", 15*time.Minute, func(ctx context.Context) error {
		return t.rebooted(ctx, s)
	})
}

// rebooted adds a row on a pod with a claim during a reboot of the node: its containers restart with the same
// devices, for which the driver writes new files.
func (t *tester) rebooted(ctx context.Context, s setup) error {
	h, err := t.hold(ctx, s.pair(2))
	if err != nil {
		return err
	}
	before, err := t.node.Registrations(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.node.Reboot(ctx); err != nil {
		return err
	}
	if err := t.node.RegisteredAfter(ctx, before, cluster.Driver); err != nil {
		return err
	}
	again, err := t.node.SeeAgain(ctx, h.pod)
	if err != nil {
		return err
	}
	again.Took = time.Since(start)
	r := Row{Setup: t.title(s), Scenario: "node reboot under a pod with a claim", outcome: again}
	if r.Problem = judge(s, s.pair(2), again); r.Problem == "" && !sameDevices(again, h.saw) {
		r.Problem = "it has other devices than before"
	}
	t.add(r)
	if err := t.agreed(ctx, s, "after the reboot"); err != nil {
		return err
	}
	return t.node.Remove(ctx, h.pod)
}

// removed adds a row on the removal of DRA mode, as in docs/dra.md: after the pods with claims, the driver
// goes, and neither slices nor claims nor files of claims remain.
func (t *tester) removed(ctx context.Context, s setup) error {
	start := time.Now()
	r := Row{Setup: t.title(s), Scenario: "removal of DRA mode"}
	if err := errors.Join(t.node.RemoveDriver(ctx), t.node.HasNoClaims(ctx)); err != nil {
		r.Problem = err.Error()
	} else {
		r.note = "no ResourceSlice, no claim and no CDI specification of a claim remains"
	}
	r.took = time.Since(start)
	t.add(r)
	return ctx.Err()
}
