// Package deviceplugin is the kubelet's side of a device plugin, written once and knowing no hardware: what
// there is to offer is a [Resource], and [Server] does the rest.
//
//	Run ─┬─ Resource.Watch ──▶ broadcast ──▶ every ListAndWatch stream gets the newest list
//	     ├─ retire: devices that are gone leave the list once the kubelet does not need them
//	     ├─ folder: something in device-plugins/ changed, look again
//	     └─ for ever: wait for kubelet.sock ─▶ new socket ─▶ serve ─▶ Register ─▶ attend
//	                  ▲                                                             │
//	                  └── pause, 100 ms to 30 s; none for a new kubelet.sock ◀──────┘ stream ended,
//	                      kubelet.sock new, our socket gone, or another plugin took over and is gone (guard.go)
//
// Where the kubelet's plugin watcher finds the plugin instead (watcher.go) nothing waits for kubelet.sock:
// the new socket is served in plugins_registry, and the kubelet comes when it comes.
//
// Three rules keep the kubelet and its pods alive. A device that was listed stays listed, as unhealthy, until
// the kubelet does not need it any more: from 1.34 on it dies of one that vanishes while a container holds it
// (keep.go, broadcast.go, retire.go). GetPreferredAllocation never fails and takes 100 ms at most, for an
// error fails the pod and a delay stops all pod starts of the node (prefer.go). A socket's name is never used
// twice, for a kubelet from 1.37 on never forgets a name whose registration went wrong (socket.go).
package deviceplugin
