// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

var nodes = flag.Int("nodes", 100, "`number` of nodes in TestPublishers")

// TestPublishers counts the writes of nodes with a change per minute each, for two minutes, and after a
// return of the API server after two minutes. There are as many writes as changes, equally spread.
func TestPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, *nodes)
		defer stop()
		wait(t, time.Minute)
		before, _, _ := s.counts()
		wait(t, 2*time.Minute)
		writes, _, _ := s.counts()
		rate, want := float64(len(writes)-len(before))/120, float64(*nodes)/60
		if rate > want*1.02 || rate < want*0.98 {
			t.Errorf("%.2f writes a second of %d nodes, want %.2f", rate, *nodes, want)
		}
		s.set(func(s *server) { s.away = true })
		wait(t, 2*time.Minute)
		dials := s.dialled()
		wait(t, time.Second)
		dials = s.dialled() - dials
		s.set(func(s *server) { s.away = false })
		wait(t, time.Minute/2)
		all, _, _ := s.counts()
		t.Logf("%d nodes: %.1f writes a second, %d at the most; %d connections tried in a second while it "+
			"is away; after two minutes %d writes at the most in a second", *nodes, rate,
			busiest(writes[len(before):]), dials, busiest(all[len(writes):]))
	})
}

// start publishes nodes until they are stopped.
func start(t *testing.T, count int) (*server, func()) {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint("node-", i))
	}
	s, first := newServer(names...), newNode(t, "")
	var stops []func()
	for _, name := range names {
		n := &node{name: name, kubeletDir: first.kubeletDir, events: first.events, tree: first.tree,
			changed: make(chan struct{})}
		n.healthy(8)
		stops = append(stops, run(t, n.publisher(t, s), n), everyMinute(n))
	}
	return s, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// everyMinute changes a node once a minute, at a random second.
func everyMinute(n *node) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		next := time.After(rand.N(time.Minute))
		for count := 7; ; count = 15 - count {
			select {
			case <-ended:
				return
			case <-next:
				n.healthy(count)
				next = time.After(time.Minute)
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// busiest returns the maximum per second.
func busiest(times []time.Time) (most int) {
	seconds := map[int64]int{}
	for _, at := range times {
		seconds[at.Unix()]++
		most = max(most, seconds[at.Unix()])
	}
	return most
}
