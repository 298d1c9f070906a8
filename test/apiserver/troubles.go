// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"time"
)

// troubles are those that hinder a server until it is healed.
type troubles struct {
	away   bool          // all requests but those of lists and watches fail
	silent bool          // no request is answered
	behind bool          // watches receive nothing
	healed chan struct{} // closed when lists and watches are answered again; nil if they are
}

// Leave makes the server fail requests. Lists and watches are not answered.
func (s *Server) Leave() { s.stop(troubles{away: true}) }

// FallSilent makes the server answer no request.
func (s *Server) FallSilent() { s.stop(troubles{silent: true}) }

func (s *Server) stop(by troubles) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.silent = by.away, by.silent
	if s.healed == nil {
		s.healed = make(chan struct{})
	}
}

// FallBehind keeps events of watches back.
func (s *Server) FallBehind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = true
}

// Heal ends all troubles.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healed != nil {
		close(s.healed)
	}
	s.troubles = troubles{}
	for w := range s.streams {
		w.wake()
	}
}

// Compact forgets all earlier changes: watches, and later ones of earlier versions, end with the status 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions++
	s.oldest, s.deleted = s.versions, nil
	for w := range s.streams {
		w.expire()
		delete(s.streams, w)
	}
}

// Cut ends the watches that are older than an age.
func (s *Server) Cut(age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		if time.Since(w.began) > age {
			w.end()
			delete(s.streams, w)
		}
	}
}

// await waits until the server answers a request: lists and watches wait also for a server that is away.
func (t Transport) await(ctx context.Context, isRead bool) error {
	t.Server.mu.Lock()
	healed := t.Server.healed
	waits := healed != nil && (isRead || t.Server.silent)
	t.Server.mu.Unlock()
	if !waits {
		return nil
	}
	select {
	case <-healed:
		if t.Delay != nil {
			t.Delay(ctx)
		}
	case <-ctx.Done():
	}
	return ctx.Err()
}
