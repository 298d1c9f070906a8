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

// visitors are the connections of a server. One too many costs the oldest of its kind, not the new one:
// whoever opens many, and can be anybody on the network, keeps the kubelet out no longer than it takes to
// send a line.
type visitors struct {
	mu              sync.Mutex
	waiting, served []net.Conn // the oldest first
}

// changed is a server's ConnState.
func (v *visitors) changed(conn net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	isIt := func(other net.Conn) bool { return other == conn }
	v.waiting, v.served = slices.DeleteFunc(v.waiting, isIt), slices.DeleteFunc(v.served, isIt)
	switch state {
	case http.StateNew, http.StateIdle:
		v.waiting = dropOldest(append(v.waiting, conn), maxWaiting)
	case http.StateActive:
		v.served = dropOldest(append(v.served, conn), maxServed)
	case http.StateClosed, http.StateHijacked:
	}
}

// dropOldest closes the oldest of more connections than there may be; the server notices.
func dropOldest(conns []net.Conn, most int) []net.Conn {
	if len(conns) <= most {
		return conns
	}
	_ = conns[0].Close()
	return slices.Delete(conns, 0, 1)
}
