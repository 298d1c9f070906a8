package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// scenario is a pod, and what has to become of it.
type scenario struct {
	name     string
	asks     []ask
	networks string // of Multus, "" for none
	refused  string // the kubelet's reason; "" where it has to be admitted
	limit    string // why pairs may be far from each other all the same; "" where they may not
}

// setup is a way to run the node.
type setup struct {
	name      string
	deploy    string // a folder below deploy
	tandem    bool   // every pair has to be on one switch
	pairsFile bool   // containers have a pairs.json
	source    string // that has to tell what containers want, "" for whichever does
	scenarios []scenario
}

const topologyAffinity = "TopologyAffinityError"

func pair(n int) scenario {
	a := ask{gpus: n, vfs: n}
	return scenario{name: a.String(), asks: []ask{a}}
}

// refusedPair is one that the kubelet refuses even on an empty node.
func refusedPair(n int) scenario {
	s := pair(n)
	s.refused = topologyAffinity
	return s
}

var kinds = []scenario{
	{name: "4 GPUs", asks: []ask{{gpus: 4}}},
	{name: "4 VFs", asks: []ask{{vfs: 4}}},
	{name: "Guaranteed, 1 CPU and 2+2", asks: []ask{{gpus: 2, vfs: 2, cpus: 1}}},
}

// telling are those of which it helps to know the whole request.
var telling = []scenario{
	{name: "two containers, 2+2 and 1+1", asks: []ask{{gpus: 2, vfs: 2}, {gpus: 1, vfs: 1}}},
	{name: "init container 2+2, then 2+2", asks: []ask{{gpus: 2, vfs: 2, init: true}, {gpus: 2, vfs: 2}}},
	// CPU 0 is the system's, so that these two are on the second socket, and GPUs with them. A VF without a NUMA hint
	// that is asked for before the GPU is chosen where GPUs alone would go: on the first.
	{name: "Guaranteed, 2 CPUs and 2+2", asks: []ask{{gpus: 2, vfs: 2, cpus: 2}}, limit: "Tandem does not foresee which socket has the CPUs"},
}

// boots are the machines that the options ask for.
func boots(o options) []machine {
	if o.short {
		shipped := setup{name: "Tandem", deploy: mi300x.deploy, tandem: true, scenarios: []scenario{pair(4), pair(8)}}
		return []machine{{shape: mi300x, example: true, phases: []phase{{vfsPerPF: 4, setups: []setup{shipped}}}}}
	}
	all := []scenario{pair(1), pair(2), pair(4), pair(8)}
	shipped := func(s shape, more ...scenario) setup {
		return setup{name: "Tandem, as shipped", deploy: s.deploy, tandem: true, scenarios: slices.Concat(all, more)}
	}
	known := slices.Clone(telling)
	for i := range known {
		known[i].limit = "" // it is the kubelet that tells
	}
	intent := setup{name: "Tandem, told by the kubelet", deploy: "intent", tandem: true, source: "kubelet", scenarios: append(known, pair(4))}
	hints := setup{name: "Tandem, hints for VFs and pairs.json", deploy: "hints", tandem: true, pairsFile: true, scenarios: []scenario{pair(4), pair(8)}}
	stock := func(scenarios ...scenario) setup {
		return setup{name: "stock, no preferred allocation", deploy: "stock", scenarios: scenarios}
	}
	machines := []machine{
		{shape: mi300x, plain: true, phases: []phase{
			{vfsPerPF: 4, thorough: true, setups: []setup{stock(pair(2), refusedPair(8)), intent, shipped(mi300x, slices.Concat(kinds, telling)...)}},
			{vfsPerPF: 1, multus: true, setups: []setup{stock(all...), hints, shipped(mi300x)}},
		}},
		{shape: h100, example: true, phases: []phase{{vfsPerPF: 2, setups: []setup{shipped(h100)}}}},
	}
	for i := range machines {
		machines[i].phases = slices.DeleteFunc(machines[i].phases, func(p phase) bool { return o.vfs != 0 && o.vfs != p.vfsPerPF })
	}
	return slices.DeleteFunc(machines, func(m machine) bool {
		return len(m.phases) == 0 || o.machine != "" && !strings.EqualFold(o.machine, m.name)
	})
}

// tries is how often a pod is created whose pairs are not as they should be because an answer came late. A plugin has 100 ms,
// which an emulated machine on a busy host does not always keep; what comes late is said in the result.
const tries = 10

// try creates a scenario's pod, judges what became of it, and returns the pod.
func (t *tester) try(ctx context.Context, s setup, c scenario) (name string, err error) {
	name, o, late, err := t.admit(ctx, s, c)
	if err == nil {
		t.add(row{setup: t.title(s), scenario: c.name, outcome: o, problem: judge(s, c, o), note: join(lateNote(late), c.limit)})
	}
	return name, err
}

// admit creates a pod, and again where it was not as it should be because an answer was late. Late is how often that was. Every try has
// a name of its own, as the pods of a ReplicaSet have.
func (t *tester) admit(ctx context.Context, s setup, c scenario) (name string, o *outcome, late int, err error) {
	late, err = t.unlessLate(ctx, s.source, c.name, func() (good bool, err error) {
		if name != "" {
			if err := t.node.remove(ctx, name); err != nil {
				return false, err
			}
		}
		name = t.podName()
		if o, err = t.node.create(ctx, name, c); err != nil {
			return false, err
		}
		good = judge(s, c, o) == ""
		if !good && o.reason == "" {
			t.node.keep(ctx, name, t.path("run/"+name+".log"))
		}
		return good, nil
	})
	return name, o, late, err
}

// unlessLate does something, and again where it did not end well and the daemons say that an answer was late meanwhile. Late is how
// often that was.
func (t *tester) unlessLate(ctx context.Context, source, what string, try func() (good bool, err error)) (late int, err error) {
	for ; ; late++ {
		before, err := t.lateAnswers(ctx, source)
		if err != nil {
			return late, err
		}
		good, err := try()
		if err != nil {
			return late, err
		}
		after, err := t.lateAnswers(ctx, source)
		if err != nil || good || after == before || late == tries-1 {
			return late, err
		}
		t.say("  %s: an answer came late: once more", what)
	}
}

// lateAnswers counts the answers of daemons that were not there in time so far, and the decisions for which those of a source were not,
// which is "" where none has to tell.
func (t *tester) lateAnswers(ctx context.Context, source string) (int, error) {
	late, err := t.node.lateAnswers(ctx)
	if err != nil || source == "" {
		return late, err
	}
	count, err := t.node.decisions(ctx)
	for told, decisions := range count {
		if told != source {
			late += decisions
		}
	}
	return late, err
}

// join puts notes together, those that there are.
func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}

func lateNote(late int) string {
	if late == 0 {
		return ""
	}
	return fmt.Sprintf("after %d tries in which an answer came late", late)
}

// judge says what is wrong with an outcome, "" for nothing.
func judge(s setup, c scenario, o *outcome) string {
	switch {
	case o.reason != c.refused:
		return fmt.Sprintf("refused for %q, want %q", o.reason, c.refused)
	case o.reason != "":
		return ""
	}
	for i, a := range c.asks {
		v := o.containers[i]
		switch {
		case len(v.gpus) != a.gpus || len(v.vfs) != a.vfs:
			return fmt.Sprintf("container %d saw %d GPUs and %d VFs", i, len(v.gpus), len(v.vfs))
		case !s.tandem || c.limit != "":
		case v.pairs() != min(a.gpus, a.vfs):
			return fmt.Sprintf("container %d has %d of %d pairs on one switch", i, v.pairs(), min(a.gpus, a.vfs))
		case !v.verified:
			return fmt.Sprintf("container %d: %s", i, v.verdict)
		case s.pairsFile && !strings.Contains(v.verdict, "pairs.json agrees"):
			return fmt.Sprintf("container %d has no pairs.json that agrees: %s", i, v.verdict)
		}
	}
	return ""
}

// told adds a row on which sources told who asks when a plugin was asked: the set-up's most times. One that is late is passed over for the
// next one, and an emulated machine is slow.
func (t *tester) told(ctx context.Context, s setup) error {
	start := time.Now()
	count, err := t.node.decisions(ctx)
	if err != nil {
		return err
	}
	all := 0
	var notes []string
	for _, source := range slices.Sorted(maps.Keys(count)) {
		all += count[source]
		notes = append(notes, fmt.Sprintf("%s: %d", source, count[source]))
	}
	r := row{setup: t.title(s), scenario: "sources of decisions", note: strings.Join(notes, ", "), took: time.Since(start)}
	if 2*count[s.source] <= all {
		r.problem = "most were made without what the " + s.source + " knows"
	}
	t.add(r)
	return nil
}

// agreed adds a row on whether the kubelet, the ledger and the API server say the same.
func (t *tester) agreed(ctx context.Context, s setup, when string) error {
	start := time.Now()
	r := row{setup: t.title(s), scenario: "PodResources, node status and ledger " + when, note: "agree"}
	if err := t.node.agree(ctx); err != nil {
		r.note, r.problem = "", err.Error()
	}
	r.took = time.Since(start)
	t.add(r)
	return ctx.Err()
}
