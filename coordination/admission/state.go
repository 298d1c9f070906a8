package admission

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
)

// state is all that is kept from one decision to the next. Once others can see it nothing in it changes: a
// decision works on a copy, which becomes the next state when it is committed.
type state struct {
	version   int // grows with every question and Allocate: what was read before is of an older one
	sequence  int // of Allocates
	ids       int // of containers in admission, the highest
	tree      *topology.Tree
	resources resources.Set

	allocates []holders.Allocate       // that are not over
	known     map[string]holders.Known // by UID, pods of the kubelet's checkpoint
	seen      asking.Seen              // of the last look at PodResources
	found     holders.Holders          // by the last question, with what was given since
	books     func() *books            // of resources and found

	plan  *plan // for the container that asks; nil for none
	given given
}

// newState is one in which nothing is known but the PCI tree.
func newState(tree *topology.Tree) *state {
	s := &state{tree: tree}
	s.hold(nil)
	return s
}

// given is the container that got the newest Allocate, and all that the kubelet has given it. A pairs file is
// asked for with the VFs, and is complete when the GPUs are there too, whichever comes first: whoever reports
// the last half has it written before the kubelet gets its answer, and so before the container starts.
type given struct {
	container *asking.Container // nil for none
	before    *asking.Container // see inPairOrder
	devices   kubelet.Devices   // in the order in which the container lists them
	files     []string          // pairs files that it asked for
	vfs       []pairs.VF        // what they say of its VFs

	at       time.Time
	recorded kubelet.Identity // of the kubelet's checkpoint at that moment; the zero value where it was not read
	foreseen bool             // it fulfilled a plan, so that the container's pods are right
	refused  bool             // the container was refused after it: nothing follows
}

// progress tells how far the kubelet is with the container.
func (g *given) progress(now kubelet.Checkpoint, err error) asking.Progress {
	switch {
	case g.refused:
		return asking.Complete
	case err != nil || now.Identity == kubelet.Identity{}:
		return asking.Unknown
	case g.container == nil:
		return asking.Complete
	case g.recorded == kubelet.Identity{}:
		return asking.Unknown
	case g.recorded == now.Identity:
		return asking.Open
	default:
		return asking.Complete
	}
}

// clone copies what a decision can change.
func (s *state) clone() *state {
	next := *s
	if s.plan != nil {
		p := *s.plan
		p.devices, p.promised = maps.Clone(p.devices), maps.Clone(p.promised)
		next.plan = &p
	}
	next.allocates, next.found = slices.Clip(s.allocates), slices.Clip(s.found)
	next.given.devices, next.given.vfs = maps.Clone(s.given.devices), slices.Clone(s.given.vfs)
	next.given.files = slices.Clone(s.given.files)
	return &next
}

// recent reports whether the newest Allocate was so fresh when a question came that it can still be the same
// container's.
func (s *state) recent(asked time.Time) bool { return asked.Sub(s.given.at) < asking.FollowWindow }

// hold makes holders those that are known.
func (s *state) hold(found holders.Holders) {
	set := s.resources
	s.found, s.books = found, sync.OnceValue(func() *books { return newBooks(set, found) })
}

// deciding is a decision in progress. What it changes is its own copy of the state; what it has to say waits
// until that is committed.
type deciding struct {
	*state
	now       func() time.Time
	alignment intent.Alignment // of pods that say nothing
	at        time.Time        // when the question came
	cpus      *cpus            // then; nil where they do not matter, or are not known
	policy    hints.Policy     // of the node; "" where it is not known

	view   *kubelet.View     // that was looked at: it names the containers of earlier decisions
	asked  *history.Decision // the question that was answered, nil for none
	handed *handover         // the Allocate that was answered, nil for none
	notes  []note            // for the log
	words  words             // for the observer
	paired bool              // the pairs files of the container are to be written
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
	if err == nil {
		c.tell(d)
	}
	return err
}

// tell says what a decision had to say. False means that not all pairs files are as they should be.
func (c *Coordinator) tell(d *deciding) bool {
	for _, n := range d.notes {
		c.Log.Log(context.Background(), n.level, n.text, n.args...)
	}
	for _, tell := range d.words {
		tell(c.watcher())
	}
	if !d.paired {
		return true
	}
	all := func() []pairs.Device { return c.handed(d.state) }
	return c.pairs.Complete(d.given.files, d.given.vfs, d.tree, all)
}

// handed is what the container of a state has been given, with what came since.
func (c *Coordinator) handed(s *state) []pairs.Device {
	if now := c.current(); slices.Equal(now.given.files, s.given.files) {
		s = now
	}
	return s.resources.Paired(s.given.devices)
}

// commit makes a decision, and its state that of all.
func (c *Coordinator) commit(work func(*deciding) error) (*deciding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	d := &deciding{state: c.current().clone(), now: c.now, alignment: c.Alignment}
	if err := work(d); err != nil {
		return nil, err
	}
	c.state.Store(d.state)
	d.remember(&c.history)
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

// remember notes a decision that was committed.
func (d *deciding) remember(log *history.Log) {
	if d.view != nil {
		log.Resolve(*d.view)
	}
	if d.asked != nil {
		log.Add(d.asked)
	}
	if g := d.handed; g != nil {
		log.Give(g.at, g.container, g.resource, g.ids, g.refusal)
	}
}

// locked does something quick with what the mutex guards.
func (c *Coordinator) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}
