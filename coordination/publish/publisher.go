// SPDX-License-Identifier: Apache-2.0

// Package publish keeps a node's published objects up to date. A [Reader] reads the plugins' announcements,
// sysfs, and the kubelet's configuration and checkpoints, and builds the specification of the NodeTopology
// ([BuildSpec]), once for each change. The NodeResourceTopology ([BuildZones]) and the labels of a
// NodeFeature are pure functions of these [Facts].
//
//	plugins' announcements, the kubelet's files          Reader
//	      └─ changed ──> 200 to 300 ms ──> facts         Publisher.Publish
//	                                         ├─> Sink    keep: one goroutine for each
//	                                         └─> Sink
//
// The state is published, not its changes: each write uses the newest facts, so that intermediate changes
// cost no write, and unchanged content is not written. There is no heartbeat. Every five minutes each sink
// compares the published content with the facts, so that an object that was deleted or changed is written
// again.
//
// No other work waits for a sink. A sink that fails is retried after a pause that grows to two minutes. If
// the API server was unreachable, its sinks are retried as soon as a connection succeeds.
//
// # State: source; bound; refresh; precedence
//
//   - objects and the Node: the API server; one body per sink; every 5 to 6¼ minutes, at a kubelet's start,
//     after a failed write; facts win over objects, the API server over the Node.
//   - the kubelet's configuration: its answer, otherwise its files; one; at a kubelet's start, every 5 to 6¼
//     minutes; the answer, then the files.
//   - devices, CPUs and memory of pods: the kubelet's checkpoint and its managers' files; their pods; every
//     30 s and when a file changes; the files. Unreadable: unchanged, with a note; never read: not published.
package publish

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

const (
	// Coalesce is the minimum time for which changes are collected.
	Coalesce = 200 * time.Millisecond
	// Jitter is the maximum extension of Coalesce.
	Jitter = 100 * time.Millisecond
	// look is the interval of reads if changes cannot be watched. Such a read alone causes no write.
	look = 30 * time.Second
	// recheck is the interval of comparisons with the published content, and of reads of the kubelet's
	// configuration, plus up to a quarter. A comparison restores deleted and changed content.
	recheck = 5 * time.Minute
)

// Sink is a target of a node's publication.
type Sink interface {
	// Name returns the name in --publish.
	Name() string
	// Write updates the published content from the facts. It reports whether a write was necessary.
	Write(ctx context.Context, f Facts) (written bool, err error)
	// Forget drops the cached state of the target, so that the next Write reads it. It may be called while Write
	// runs.
	Forget()
}

// Config configures a Publisher.
type Config struct {
	Targets       Targets
	Server        *rest.Config // of the API server; nil for that of this process's pod
	Node          string       // the name of the node's object
	NamespaceFile string       // has the namespace of this process's pod, for the target nfd
	Sinks         []Sink       // besides those of the targets

	Sys        fs.FS  // root of sysfs
	KubeletDir string // the kubelet's folder (/var/lib/kubelet)
	Files      kubelet.ConfigFiles
	// Configz requests the kubelet's configuration, which takes precedence over Files; nil if not available.
	Configz func(context.Context) ([]byte, error)
	// Pods requests the kubelet's pods; nil if not available. It returns an error while the kubelet does not
	// know all of them.
	Pods func(ctx context.Context, each func(*corev1.Pod)) error
	// Watch sends changes of the kubelet's folder until ctx is done, without ever blocking; nil for a watch of
	// the folder.
	Watch func(ctx context.Context, changed chan<- Change)
	// Published reports a write, or a failed attempt.
	Published func(sink string, err error)
	Log       *slog.Logger
}

// Change is a change of a kubelet's folder.
type Change int

// The changes: a file is another, or the kubelet has been started.
const (
	Written Change = iota
	Started
)

// Publisher publishes a node while its plugin serves the coordination.
type Publisher struct {
	config Config
	reader *Reader
	sinks  []Sink
	// reach opens a connection to the API server and closes it; nil if no sink needs one.
	reach func(context.Context) error
	notes notes
}

// New returns a Publisher.
func New(config Config) (*Publisher, error) {
	sinks, reach, err := NewSinks(config)
	if err != nil {
		return nil, err
	}
	if config.Watch == nil {
		config.Watch = watchFolder(config.KubeletDir, config.Log)
	}
	return &Publisher{
		config: config, reader: NewReader(config), sinks: append(sinks, config.Sinks...), reach: reach,
	}, nil
}

// Notes returns sentences about failing sinks, by their names.
func (p *Publisher) Notes() []string { return p.notes.allNotes() }

// Publish keeps all sinks up to date until ctx is done. A panic also ends the work for the sinks: the caller
// recovers and calls Publish again. Until then Notes says that the publications are not up to date.
func (p *Publisher) Publish(ctx context.Context, plugins coordination.Announced) error {
	var all sync.WaitGroup
	defer p.notes.putNote(stale, "")
	defer p.noteFailure(ctx)
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	newest := &system.Newest[*Facts]{} // nil before the first
	for _, sink := range p.sinks {
		k := keeper{Publisher: p, sink: sink, newest: newest}
		all.Go(func() { k.keepWritten(ctx) })
	}
	events := make(chan Change, 16)
	all.Go(func() {
		_ = system.Survive(p.config.Log, func() error { p.config.Watch(ctx, events); return nil }) // look remains
	})
	tick := time.NewTicker(look)
	defer tick.Stop()
	check := time.NewTimer(untilRecheck())
	defer check.Stop()
	p.noteChange(Started)         // another plugin may have published meanwhile, and the kubelet have started
	p.collectChanges(ctx, events) // when another plugin served before, all have to announce again
	for ctx.Err() == nil {
		announced, changed := plugins.Announced()
		enforcement, otherwise := plugins.Enforcement()
		if len(announced.Resources) > 0 { // no resources yet means unknown, not none
			read := p.reader.Read(ctx, announced)
			read.Enforced, read.Spec.Alignment = enforcement.Enforced(), plugins.Policy().Publish()
			newest.Set(&read)
			p.notes.putNote(failure, "")
			p.noteStale(read.Stale)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-otherwise:
		case <-tick.C:
		case <-check.C:
			p.reader.Recheck()
			p.forgetPublished()
			check.Reset(untilRecheck())
		case event := <-events:
			p.noteChange(event)
		}
		p.collectChanges(ctx, events)
	}
	return nil
}

// Subjects of notes besides the names of sinks: a failed Publish, and stale facts.
const (
	failure = "failure"
	stale   = "stale"
)

// noteStale notes that published assignments of pods are those of an earlier time, or absent.
func (p *Publisher) noteStale(reason error) {
	text := ""
	if reason != nil {
		text = fmt.Sprintf("devices, CPUs and memory of pods are published as known before, "+
			"and what was never known is not published: %v", reason)
	}
	p.notes.putNote(stale, text)
}

// noteFailure notes the end of Publish before the end of ctx.
func (p *Publisher) noteFailure(ctx context.Context) {
	if ctx.Err() == nil {
		p.notes.putNote(failure, fmt.Sprintf("what is published of this node is not up to date since %s: "+
			"the publisher failed and is started again; its log has the reason", time.Now().Format(time.RFC3339)))
	}
}

// collectChanges waits a moment for more changes.
func (p *Publisher) collectChanges(ctx context.Context, events <-chan Change) {
	enough := time.After(Coalesce + rand.N(Jitter))
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			p.noteChange(event)
		case <-enough:
			return
		}
	}
}

func (p *Publisher) noteChange(event Change) {
	if event != Started {
		return
	}
	p.reader.Restarted()
	p.forgetPublished() // the node can be another
}

// forgetPublished makes all sinks read the published content.
func (p *Publisher) forgetPublished() {
	for _, sink := range p.sinks {
		sink.Forget()
	}
}

// untilRecheck returns the time until the next recheck.
func untilRecheck() time.Duration { return recheck + rand.N(recheck/4) }

// kubeletSocket is the socket that the kubelet recreates at its start (pkg/kubelet/cm/devicemanager).
const kubeletSocket = "kubelet.sock"

// watchFolder returns a function that sends changes in a kubelet's folder: of the files of facts, and of the
// socket.
func watchFolder(kubeletDir string, log *slog.Logger) func(context.Context, chan<- Change) {
	checkpoint := kubelet.CheckpointPath(kubeletDir)
	watch := system.Watch{Paths: []string{filepath.Dir(checkpoint), kubeletDir}, Interval: look, Log: log}
	interesting := map[string]Change{
		checkpoint: Written,
		filepath.Join(kubeletDir, kubelet.CPUStateFile):        Written,
		filepath.Join(kubeletDir, kubelet.MemoryStateFile):     Written,
		filepath.Join(filepath.Dir(checkpoint), kubeletSocket): Started,
	}
	return func(ctx context.Context, changed chan<- Change) {
		known := map[string]system.Identity{}
		for path := range interesting {
			known[path], _ = system.Identify(path)
		}
		_ = watch.Run(ctx, func() error {
			for path, change := range interesting {
				now, there := system.Identify(path)
				if now == known[path] {
					continue
				}
				known[path] = now
				if change == Started && !there {
					continue
				}
				select {
				case changed <- change:
				case <-ctx.Done():
				}
			}
			return nil // ctx alone ends the watch
		})
	}
}
