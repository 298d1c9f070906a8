package admission

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// state is all that a decision goes by. Once others can see it nothing in it changes: a decision works on a
// copy, which becomes the next state when it is committed.
type state struct {
	tree    *topology.Tree
	ledger  *ledger
	last    record
	pairing pairing
	promise promise
}

// clone copies what a decision can change.
func (s *state) clone() *state {
	copies := map[*allocation]*allocation{nil: nil}
	copied := func(a *allocation) *allocation {
		if _, known := copies[a]; !known {
			copies[a] = a.clone()
		}
		return copies[a]
	}
	next := *s
	next.ledger = s.ledger.clone(copied)
	next.pairing.allocation, next.pairing.before = copied(s.pairing.allocation), copied(s.pairing.before)
	next.pairing.given, next.pairing.files = maps.Clone(s.pairing.given), slices.Clone(s.pairing.files)
	next.promise.holder, next.promise.devices = copied(s.promise.holder), maps.Clone(s.promise.devices)
	return &next
}

// clone copies a ledger, with its allocations as they are copied elsewhere too.
func (l *ledger) clone(copied func(*allocation) *allocation) *ledger {
	next := *l
	next.resources = maps.Clone(l.resources)
	next.holders = make(map[string]map[string]*allocation, len(l.holders))
	for name, holders := range l.holders {
		next.holders[name] = make(map[string]*allocation, len(holders))
		for id, a := range holders {
			next.holders[name][id] = copied(a)
		}
	}
	if l.plan != nil {
		plan := *l.plan
		plan.devices, plan.holder = maps.Clone(plan.devices), copied(plan.holder)
		next.plan = &plan
	}
	return &next
}

func (a *allocation) clone() *allocation {
	next := *a
	if a.devices != nil {
		next.devices = make(map[string]map[string]int, len(a.devices))
	}
	for name, ids := range a.devices {
		next.devices[name] = maps.Clone(ids)
	}
	return &next
}

// deciding is a decision in progress. What it changes is its own copy of the state; what it has to say waits
// until that is committed.
type deciding struct {
	*state
	alignment intent.Alignment // of pods that say nothing
	at        time.Time        // when the question came
	progress  progress         // of the container that got the newest Allocate, when it came
	cpus      *cpus            // then; nil where they do not matter, or are not known

	view  *kubelet.View     // that was looked at: it names the containers of earlier decisions
	asked *history.Decision // the question that was answered, nil for none
	given *handover         // the Allocate that was answered, nil for none
	notes []note            // for the log
	words words             // for the observer
	pairs *pairing          // of which the files are to be written, nil for none
}

// note is a line for the log.
type note struct {
	level slog.Level
	text  string
	args  []any
}

func (d *deciding) warn(text string, args ...any) {
	d.notes = append(d.notes, note{slog.LevelWarn, text, args})
}

func (d *deciding) error(text string, args ...any) {
	d.notes = append(d.notes, note{slog.LevelError, text, args})
}

// current is the state as it was committed last.
func (c *Coordinator) current() *state { return c.state.Load() }

// decide has one decision made and commits it; where it fails nothing has changed. Decisions are made one
// after the other, and read nothing but what they are given and the clock. The log, the observer and files
// come after the commit, before decide returns.
func (c *Coordinator) decide(work func(*deciding) error) error {
	d, err := c.commit(work)
	if err != nil {
		return err
	}
	for _, n := range d.notes {
		c.Log.Log(context.Background(), n.level, n.text, n.args...)
	}
	for _, tell := range d.words {
		tell(c.watcher())
	}
	if d.pairs != nil {
		c.pairs.Complete(d.pairs.files, d.tree, func() []pairs.Device { return c.handed(d.state) })
	}
	return nil
}

// handed is what the container of a state has been given, with what came since.
func (c *Coordinator) handed(s *state) []pairs.Device {
	if now := c.current(); slices.Equal(now.pairing.files, s.pairing.files) {
		s = now
	}
	return s.ledger.ofAll(s.pairing.given)
}

// commit makes a decision, and its state that of all.
func (c *Coordinator) commit(work func(*deciding) error) (*deciding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	d := &deciding{state: c.current().clone(), alignment: c.Alignment}
	if err := work(d); err != nil {
		return nil, err
	}
	c.state.Store(d.state)
	d.tell(&c.history)
	return d, nil
}

// handover is an Allocate that was answered.
type handover struct {
	at        time.Time
	container *kubelet.Container // nil while it is not known
	resource  string
	ids       []string
	refusal   string // "" for none
}

// tell notes a decision that was committed.
func (d *deciding) tell(log *history.Log) {
	if d.view != nil {
		log.Resolve(*d.view)
	}
	if d.asked != nil {
		log.Add(d.asked)
	}
	if g := d.given; g != nil {
		log.Give(g.at, g.container, g.resource, g.ids, g.refusal)
	}
}

// locked does something quick with what the mutex guards.
func (c *Coordinator) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// now is the time by the coordinator's clock.
func (c *Coordinator) now() time.Time { return c.current().ledger.now() }
