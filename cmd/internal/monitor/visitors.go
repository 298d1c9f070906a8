// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Bounds of the connections at one address. A kubelet has one for each probe, a Prometheus one.
const (
	maxWaiting = 64 // that have not asked, or not again
	maxServed  = 64 // that are being answered
)

// visitors are the connections of a server. A connection too many costs an old one: anybody on the network
// can open many, and keeps the kubelet out no longer than the kubelet takes to send a line. Idle
// connections, whose question is answered, go before those that have not asked yet: a client asks again on
// a new connection where an idle one is closed, and fails where a new one is.
type visitors struct {
	mu                  sync.Mutex
	idle, fresh, served []net.Conn // each the oldest first
}

// changed is a server's ConnState.
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
