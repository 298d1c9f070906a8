// SPDX-License-Identifier: Apache-2.0

// Package coordination combines the kubelet's separate questions into one decision.
//
// For a container with GPUs and VFs the kubelet asks each plugin separately, in random order, without the
// name and the other requests of the container. Both plugins forward the question to one coordinator. The
// coordinator chooses the devices of all resources together, answers for the resource of the question, and
// keeps the rest as a plan.
//
//	kubelet ── GetPreferredAllocation ──▶ tandem-gpu ── Prefer ──▶ coordinator: who asks? what is free?
//	        ◀─ four GPUs ──────────────── tandem-gpu ◀─ four GPUs ─┘            plan: four VFs
//	kubelet ── Allocate ────────────────▶ tandem-gpu ── Allocated ▶ coordinator
//	kubelet ── GetPreferredAllocation ──▶ tandem-rdma ─ Prefer ──▶ coordinator: the same container; VFs
//	kubelet ── Allocate ────────────────▶ tandem-rdma ─ Allocated ▶ coordinator: the order of the VFs
//
// This package is the plugins' side and the socket. The decisions are in package admission.
//
// # Who serves
//
// Each plugin is a [Node]: a client of <run-dir>/coordination.sock and, while the plugin holds <run-dir>/lock
// (flock), the server. When the holder dies the kernel releases the lock, the other plugin takes the lock,
// and both announce their devices to the new server. No third process exists, and the order of start is free.
// The plugin that serves calls its server directly, with the same limits and checks (ask in join.go).
//
// A plugin lists its devices ([Member.List]), announces the list over Join ([Member.Publish]), reports the
// same list to the kubelet when the server uses the announcement ([Member.AwaitTaken]), asks Prefer
// ([Member.Prefer]) and reports Allocated ([Member.Allocated]).
//
// A server ends in order: open calls are answered, decisions end, and the file is written. The lock is
// released after the write, so that the next server continues from the newest state. The kubelet's checkpoint
// also shows a restarted plugin the vanished devices that the kubelet still needs: these devices remain
// listed, as unhealthy.
//
// # Failures
//
// A failure changes the quality of a placement, never the success. Tandem's own faults are no exception: a
// panic costs one answer, one source or one server, and never the daemon (system.Survive). Without the
// server a plugin chooses alone (alone.go): by the PCI tree, and by the last allocation of the other plugin,
// from a file in the run directory. Without PodResources the coordinator judges by time. A question is
// answered within 100 ms: a hanging peer costs 80 ms, the kubelet's sockets 50, a file 25; only a run
// directory that hangs adds a second, for the handout. An unusable run directory ends the start with advice;
// a directory that is full, read-only or removed later costs one line in the log, and the checkpoint or the
// other plugin until the directory is usable.
//
// Two versions of Tandem work together if the major numbers of their protocols are equal (socket.go);
// otherwise each places devices alone and logs the reason.
//
// # State
//
// All state that survives a call is a copy of a source. For each copy: the source, the limit, the time of the
// update, and the precedence if copy and source differ.
//
//   - announcement.latest: the plugin's devices; device.MaxDevices; each Publish; the plugin.
//   - machine: sysfs; the machine; announcements; sysfs, if readable.
//   - handouts.current, handout file: the last Allocate; one of a kind; each Allocate; ignored after 10 s.
//   - ownAllocates: open Allocates of this process; those in progress; their starts and ends; the plugin.
//   - membership.foreign, joined: the stream; one; each attempt to join; the server.
//   - intent's failure and pause of a source: the last answer; a minute; the next answer; the source.
//   - intent's pods: what is kept of the last list's pods, by their content; 131,072 containers and requests;
//     each list; a pod with another content is decoded.
//   - kubelet.CheckpointReader: device checkpoint; one file; changes of the content; the file.
//   - listed, the devices of a resource for coordinator and kubelet: the devices that the plugin finds, and
//     those of the list before that are gone; devices of the checkpoint, and those gone for retireAfter; each
//     list, at the start from the checkpoint; the checkpoint. Without the checkpoint all gone devices remain.
//   - resources: announcements; device.MaxResources of MaxDevices; each announcement; devices of a
//     disconnected plugin remain, unhealthy when another plugin of the kind announces, and devices of an
//     earlier server until their plugin announces.
//   - withheld devices: own devices that a container has under another resource name, and pods of the
//     checkpoint that have ended; devices and pods of the checkpoint; withholdPause; the checkpoint, then the
//     kubelet's list of pods. Without either, those known last.
//   - claimWatch: the devices of claims from an earlier time in DRA mode; those of claims.json; claimsPause;
//     claims.json and the CDI specifications. Unreadable: those known last, or all devices.
//   - own Allocates: the plugins' reports; one a resource, 256 without checkpoint; over with the next
//     checkpoint; the checkpoint, then List.
//   - found: the holders at the last question; 4,096 besides the checkpoint's; each question; the kubelet's
//     records. Not a sufficient reason to refuse a container.
//   - known: names of UIDs, by List or a request source; pods of checkpoint and source; each question; never
//     changes for a UID. Also pods of the checkpoint that have ended by List or an offer: each of both; the
//     next checkpoint, a later kubelet, or List.
//   - listing: the last List; pods of the node; each List; List.
//   - open: the container in admission, with a plan; one, the plan for planTTL; each call; the checkpoint,
//     and the kubelet's pods.
//   - admission.Allocates: open Allocates; those of connected plugins, and of others for 3 s; the plugin's
//     reports, and each start and end over a stream; the stream. List is not read meanwhile.
//   - survey, for people: the holders; the holders; after surveyTTL, or a decision; the kubelet's records.
//   - history, for people: decisions; 256; never; without influence on decisions.
//   - coordinator.json: all of the above, 4,096 of found and 256 own Allocates; 16 MiB; each change; read
//     once, at a start.
//   - pairs files: containers' devices; the checkpoint; each Allocate, 10 minutes; the checkpoint: a file
//     that two checkpoints in turn lack is removed, unless the container is in admission.
//
// The holders of devices are no state: at each question package holders finds the holders in the kubelet's
// device checkpoint and List, by the living pods and the own Allocates that the kubelet has not written down
// yet. Those found last count only where the kubelet's records are unknown or lost: a kubelet that starts
// without its checkpoint lists running pods and offers their devices. A starting server continues from
// coordinator.json, unless the file is of another boot; an Allocate in the file is over if the checkpoint was
// written since.
//
// An absence has a meaning only in a complete list. A restarted kubelet lists pods one by one: devices that
// List does not show yet are not free. The list is complete once the kubelet has written the checkpoint
// again, or offers a device, or by the kubelet's own list of pods.
//
// # Access
//
// Only root and the plugins' user have access: the directory has mode 0700, the socket 0600, and both sides
// check the peer (socket.go). The size of messages, and the number of calls and connections are limited
// (socket.go).
package coordination
