// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"net/http"
	"path"
	"time"

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// kind is a kind of requests of the driver.
type kind string

// Kinds of requests at which a process is killed.
const (
	getClaim    kind = "GET resourceclaims"
	getPod      kind = "GET pods"
	writeStatus kind = "PATCH status"
	writeSlice  kind = "PUT resourceslices"
	makeSlice   kind = "POST resourceslices"
	watchSlices kind = "GET resourceslices"
)

var kinds = []kind{getClaim, getPod, writeStatus, writeSlice, makeSlice, watchSlices}

// aim kills a process at its next request of a kind, before or after the effect of the request.
type aim struct {
	kind  kind
	after bool
}

// kindOf returns the kind of a request.
func kindOf(r *http.Request) kind {
	name := path.Base(r.URL.Path)
	if name != "resourceslices" && name != "status" && name != "version" {
		name = path.Base(path.Dir(r.URL.Path))
	}
	return kind(r.Method + " " + name)
}

// delay returns an addition to the latency of a kind of requests: requests that a process makes at the same
// time arrive in the order of their kinds.
func delay(of kind) time.Duration {
	for i, k := range kinds {
		if k == of {
			return time.Duration(i+1) * 101 * time.Microsecond
		}
	}
	return 0
}

// transport carries the requests of a process.
type transport struct{ process *process }

// RoundTrip makes a request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, of := t.process, kindOf(r)
	seeds.Pause(r.Context(), p.latency+delay(of))
	if p.killed.Load() {
		return nil, errKilled
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if p.isStruck(of, false) {
		return nil, errKilled
	}
	answer, err := p.ask(r)
	if p.isStruck(of, true) {
		return nil, errKilled
	}
	return answer, err
}

// ask makes a request that reaches the server. The death of the process ends the wait for the server.
func (p *process) ask(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(p.life, cancel)
	defer stop() // a watch goes on
	delay := func(ctx context.Context) { seeds.Pause(ctx, p.latency) }
	answer, err := apiserver.Transport{Server: p.node.server, Delay: delay}.RoundTrip(r.WithContext(ctx))
	if err != nil && p.killed.Load() {
		return nil, errKilled
	}
	return answer, err
}

// isStruck kills the process if a request meets its aim, before or after the effect of the request. An aim
// ends with the kubelet's call: the server may answer the request much later, in a calm, which has no fault.
func (p *process) isStruck(of kind, after bool) bool {
	a := p.aim.Load()
	if a == nil || *a != (aim{of, after}) || !p.aim.CompareAndSwap(a, nil) {
		return false
	}
	p.kill()
	return true
}
