package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// byDriver is the node in mode dra, to which it comes as docs/dra.md says.
var byDriver = setup{
	name:   "Tandem, by tandem-dra",
	driver: true,
	tandem: true,
	scenarios: []scenario{
		asked(4, cluster.ByTemplate), asked(8, cluster.ByTemplate),
		asked(4, cluster.ByPair), asked(8, cluster.ByPair),
		asked(4, cluster.ByResources), // as a pod that nobody has changed
	},
}

// asked is a pod with so many pairs, in one of the ways of mode dra.
func asked(n int, way cluster.Way) scenario {
	c := pair(n)
	c.asks[0].Way = way
	c.name += map[cluster.Way]string{
		cluster.ByResources: ", unchanged", cluster.ByTemplate: " by a claim", cluster.ByPair: " by tandem.dev/pair",
	}[way]
	return c
}

// intoDRA moves the node from the device plugins to mode dra, back, and to it again, as docs/dra.md says. Pods
// of before have to live on each time, with their devices, and new ones have to get other ones.
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
	// What the claim has is unhealthy for the kubelet.
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
			return t.agreedOnClaims(ctx, s, "with a claim")
		}},
		{"back to the device plugins", func(ctx context.Context) (err error) {
			next, err = t.moved(ctx, s, s, back, ofPlugins, ofDriver)
			return err
		}},
		{"the claim is taken back", func(ctx context.Context) error { return t.drained(ctx, s, ofDriver) }},
		{"to mode dra again", func(ctx context.Context) error {
			err := t.node.Remove(ctx, ofPlugins.pod, next.pod)
			return errors.Join(err, t.node.ApplyDriver(ctx, "dra"), t.move(ctx, toDRA))
		}},
	} {
		if err := t.Stage(ctx, stage.name, 15*time.Minute, stage.do); err != nil {
			return err
		}
	}
	return nil
}

// offersButClaimed waits until the API server knows the node with all devices but those of so many pairs that
// a claim has.
func (t *tester) offersButClaimed(pairs int) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(t.node.Offers(ctx, t.node.Shape.Resource, t.node.Shape.GPUs()-pairs),
			t.node.Offers(ctx, cluster.VFResource, t.node.VFs()-pairs))
	}
}

// drained adds a row on the end of a pod with a claim on a node that is in the mode of device plugins: the
// driver takes the claim back and does nothing else, and the plugins have all devices again.
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

// agreedOnClaims adds a row on whether the API server, the driver and the CDI specifications say the same.
func (t *tester) agreedOnClaims(ctx context.Context, s setup, when string) error {
	start := time.Now()
	r := Row{Setup: t.title(s), Scenario: "claims, tandem status and CDI specifications " + when, note: "agree"}
	if err := t.node.AgreeOnClaims(ctx); err != nil {
		r.note, r.Problem = "", err.Error()
	}
	r.took = time.Since(start)
	t.add(r)
	return ctx.Err()
}
