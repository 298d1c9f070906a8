// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-k8s/tandem/coordination/system"
)

const (
	// firstPause is the pause after a first failure. The pause doubles with each further failure.
	firstPause = time.Second
	// maxPause is the longest pause.
	maxPause = 2 * time.Minute
	// writeTimeout is the maximum duration of a write.
	writeTimeout = 10 * time.Second
	// Interval of attempts to reach an unreachable API server, and its maximum extension.
	reachPause  = 500 * time.Millisecond
	reachJitter = 200 * time.Millisecond
)

// keeper keeps one sink up to date.
type keeper struct {
	*Publisher
	sink   Sink
	newest *system.Newest[*Facts]

	pause     time.Duration // after the next failure; 0 without failures
	complaint complaint     // the last one that was logged
}

func (k *keeper) keepWritten(ctx context.Context) {
	defer k.notes.putNote(k.sink.Name(), "") // the other plugin may then publish
	for ctx.Err() == nil {
		newest, changed := k.newest.Watch()
		if newest != nil {
			err := k.writeNewest(ctx)
			if ctx.Err() != nil {
				return
			}
			k.logChange(err)
			if err != nil && complaintOf(err) != unread { // only other facts help then
				k.restAfter(ctx, err)
				continue // with the newest facts of that time
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// writeNewest writes the newest facts to the sink.
func (k *keeper) writeNewest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return system.Survive(k.config.Log, func() error {
		newest := k.newest.Get()
		written, err := k.sink.Write(ctx, *newest)
		if written || err != nil {
			k.config.Published(k.sink.Name(), err)
		}
		return err
	})
}

// complaint is the kind of a sink's failure. The texts of errors differ between attempts.
type complaint int

const (
	works complaint = iota
	refused
	unreached
	unread // the content is not known
)

// logChange logs the begin, the change and the end of a failure.
func (k *keeper) logChange(err error) {
	log, now := k.config.Log.With("publish", k.sink.Name()), complaintOf(err)
	switch now {
	case k.complaint:
	case works:
		k.notes.putNote(k.sink.Name(), "")
		log.Info("publication of this node works again")
	default:
		k.notes.putNote(k.sink.Name(), fmt.Sprintf(
			"publication of this node by %s is outdated since %s: %v", k.sink.Name(),
			time.Now().Format(time.RFC3339), err))
		log.Warn("publication of this node is outdated; retrying", "error", err)
	}
	k.complaint = now
	if now == works {
		k.pause = 0
	}
}

func complaintOf(err error) complaint {
	var answered apierrors.APIStatus
	switch {
	case err == nil:
		return works
	case errors.Is(err, ErrUnread):
		return unread
	case errors.As(err, &answered):
		return refused
	default:
		return unreached
	}
}

// restAfter waits after a failure: for the pause, or as long as the API server asks, or until the API server
// is reachable again.
func (k *keeper) restAfter(ctx context.Context, err error) {
	k.pause = min(max(firstPause, 2*k.pause), maxPause)
	pause := k.pause + rand.N(k.pause/4)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		pause = max(pause, time.Duration(seconds)*time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	if k.reach == nil || complaintOf(err) == refused {
		<-ctx.Done()
		return
	}
	if k.awaitReturn(ctx) {
		k.pause = 0 // it may not answer immediately
	}
}

// awaitReturn waits until the API server becomes reachable after having been unreachable, and returns true,
// or until ctx is done, and returns false.
func (k *keeper) awaitReturn(ctx context.Context) bool {
	for away := false; ctx.Err() == nil; {
		err := k.reach(ctx)
		if err == nil && away {
			return true
		}
		away = away || err != nil
		select {
		case <-ctx.Done():
		case <-time.After(reachPause + rand.N(reachJitter)):
		}
	}
	return false
}

// notes are sentences by subject.
type notes struct {
	mu   sync.Mutex
	text map[string]string
}

// putNote sets the sentence of a subject; "" removes it.
func (n *notes) putNote(subject, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil {
		n.text = map[string]string{}
	}
	n.text[subject] = text
	if text == "" {
		delete(n.text, subject)
	}
}

func (n *notes) allNotes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, subject := range slices.Sorted(maps.Keys(n.text)) {
		all = append(all, n.text[subject])
	}
	return all
}
