// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// Event is something that happens to a node. An event whose subject is not there, as the end of a pod that
// has not come, does nothing: each part of a script is a script.
type Event struct {
	Kind       Kind
	Name       string        // of the pod, process, container or record
	Namespace  string        // of the pod; "" for the usual one
	After      time.Duration // since the event before
	Dice       uint64        // determines the kubelet's choices during an admission
	Alignment  intent.Alignment
	Containers []intent.Container
	Newest     bool          // of several pods of a name
	Resource   string        // that the container gets by the call
	Method     string        // of the call to the coordinator
	What       string        // happens to a call, a record or the hardware; a condition
	Of         string        // the hardware
	Late       time.Duration // the duration of what happens
	Leaves     string        // what a killed process leaves of its files
}

// Kind is a kind of event.
type Kind string

// Kinds of events.
const (
	podArrives Kind = "pod"
	podRuns    Kind = "run"
	podEnds    Kind = "end"

	processStarts   Kind = "start"
	processStops    Kind = "stop"
	processKilled   Kind = "kill"
	processReplaced Kind = "replace" // by a second instance, before the first ends

	callFails      Kind = "call" // of the next pod's admission
	pluginsApart   Kind = "part" // the plugins lose each other
	pluginsMeet    Kind = "meet" // and find each other
	recordDisturbs Kind = "record"
	machineChanges Kind = "hardware"
	conditionMet   Kind = "condition" // of conditions.go

	kubeletRestarts Kind = "restart"
	kubeletReturns  Kind = "return" // lists one more pod after a restart
	kubeletWiped    Kind = "wipe"

	stormBegins   Kind = "storm" // the kubelet has troubles of its own
	stormEnds     Kind = "heal"  // and all faults end
	calmBegins    Kind = "calm"  // all promises hold as soon as the coordinator has read its sources
	timePasses    Kind = "wait"
	holdersJudged Kind = "check"
)

// flags binds the fields of an event to their names in its text, with their values.
func (e *Event) flags() *flag.FlagSet {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	all.SetOutput(io.Discard)
	all.StringVar(&e.Namespace, "namespace", e.Namespace, "")
	all.DurationVar(&e.After, "after", e.After, "")
	all.Uint64Var(&e.Dice, "dice", e.Dice, "")
	all.Var((*word)(&e.Alignment), "alignment", "")
	all.Var((*containers)(&e.Containers), "containers", "")
	all.BoolVar(&e.Newest, "newest", e.Newest, "")
	all.StringVar(&e.Resource, "resource", e.Resource, "")
	all.StringVar(&e.Method, "method", e.Method, "")
	all.Var((*word)(&e.What), "what", "")
	all.StringVar(&e.Of, "of", e.Of, "")
	all.DurationVar(&e.Late, "late", e.Late, "")
	all.StringVar(&e.Leaves, "leaves", e.Leaves, "")
	return all
}

// String returns the event as a line of a script: its kind, name, and other fields.
func (e Event) String() string {
	text := []string{string(e.Kind)}
	if e.Name != "" {
		text = append(text, e.Name)
	}
	none := new(Event).flags()
	e.flags().VisitAll(func(f *flag.Flag) {
		if value := f.Value.String(); value != none.Lookup(f.Name).DefValue {
			text = append(text, f.Name+"="+value)
		}
	})
	return strings.Join(text, " ")
}

// parseEvent parses a line of a script.
func parseEvent(line string) (e Event, err error) {
	words := strings.Fields(line)
	e.Kind, words = Kind(words[0]), words[1:]
	if effects[e.Kind] == nil {
		return e, fmt.Errorf("parse %q: no event has this kind", line)
	}
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		e.Name, words = words[0], words[1:]
	}
	fields := e.flags()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if err := fields.Set(name, value); err != nil {
			return e, fmt.Errorf("parse %q: %w", line, err)
		}
	}
	return e, nil
}

// word is a text with hyphens in place of its spaces, and low lines in place of its hyphens.
type word string

var (
	toWord   = strings.NewReplacer(" ", "-", "-", "_")
	fromWord = strings.NewReplacer("-", " ", "_", "-")
)

// String returns the word.
func (w *word) String() string { return toWord.Replace(string(*w)) }

// Set parses a word.
func (w *word) Set(value string) error {
	*w = word(fromWord.Replace(value))
	return nil
}
