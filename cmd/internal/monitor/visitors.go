// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Limits of connections per address. A kubelet has one for each probe, a Prometheus server one.
const (
	maxWaiting = 64 // without a request, or idle
	maxServed  = 64 // with a request in progress
)

// visitors are the connections of a server. A connection over the limit closes an old one. So a client in the
// network that opens many connections cannot lock out the kubelet for longer than the kubelet needs to send a
// line. Idle connections are closed before new ones: a client reopens a closed idle connection, but fails if
// a new one closes.
type visitors struct {
	mu                  sync.Mutex
	idle, fresh, served []net.Conn // each the oldest first
}

// changed implements a server's ConnState.
func (v *visitors) changed(conn net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	isIt := func(other net.Conn) bool { return other == conn }
	for _, conns := range []*[]net.Conn{&v.idle, &v.fresh, &v.served} {
		*conns = slices.DeleteFunc(*conns, isIt)
	}
	switch state {
	case http.StateNew:
		v.fresh = append(v.fresh, conn)
	case http.StateIdle:
		v.idle = append(v.idle, conn)
	case http.StateActive:
		v.served = append(v.served, conn)
	case http.StateClosed, http.StateHijacked:
	}
	if len(v.idle)+len(v.fresh) > maxWaiting {
		if len(v.idle) > 0 {
			v.idle = dropOldest(v.idle)
		} else {
			v.fresh = dropOldest(v.fresh)
		}
	}
	if len(v.served) > maxServed {
		v.served = dropOldest(v.served)
	}
}

// dropOldest closes the oldest connection; the server notices.
func dropOldest(conns []net.Conn) []net.Conn {
	_ = conns[0].Close()
	return slices.Delete(conns, 0, 1)
}
