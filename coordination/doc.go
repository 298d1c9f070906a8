// SPDX-License-Identifier: Apache-2.0

// Package coordination makes one decision of the kubelet's separate questions.
//
// For a container with GPUs and VFs the kubelet asks each plugin on its own, in random order, and says
// neither for which container nor what else it wants. Both plugins pass the question on to one coordinator,
// which chooses the devices of all resources at once, answers for the resource that was asked, and keeps the
// rest as a plan.
//
//	kubelet ── GetPreferredAllocation ──▶ tandem-gpu ── Prefer ──▶ coordinator: who asks? what is free?
//	        ◀─ four GPUs ──────────────── tandem-gpu ◀─ four GPUs ─┘            plan: four VFs
//	kubelet ── Allocate ────────────────▶ tandem-gpu ── Allocated ▶ coordinator
//	kubelet ── GetPreferredAllocation ──▶ tandem-rdma ─ Prefer ──▶ coordinator: the same container; VFs
//	kubelet ── Allocate ────────────────▶ tandem-rdma ─ Allocated ▶ coordinator: the order of the VFs
//
// This package is the plugins' side and the socket. What is decided, and how, is in package admission.
//
// # Who serves
//
// Each plugin is a [Node]: a client of <run-dir>/coordination.sock and, while it holds <run-dir>/lock
// (flock), its server. When the holder dies the kernel gives the lock up, the other plugin takes it and both
// announce their devices anew. There is no third process and no order of start.
//
// A plugin announces its devices over Join ([Member.Publish]), tells the kubelet of them once the server goes
// by them ([Member.AwaitTaken]), asks Prefer ([Member.Prefer]) and reports Allocated ([Member.Allocated]).
//
// A server ends in order: it turns its own plugins away, answers what is in flight, decides nothing any more,
// and writes its file then. Whoever serves next goes on from there. The kubelet's checkpoint also tells a
// plugin that starts anew where the devices are that have vanished and that the kubelet still needs: they
// stay listed, as unhealthy ([Node.Listed]).
//
// # When something is away
//
// It changes the quality of a placement, never its success, and so does a mistake of ours: a panic costs one
// answer, one source or one server, and never the daemon (package survive). Without the server a plugin makes
// the best choice that it can make alone (alone.go): by the PCI tree, and by what the other plugin gave last,
// which it reads in the run folder (handout.go). Without PodResources the coordinator judges by time, and a
// question is answered within 100 ms either way: a peer that hangs costs 80 ms, the kubelet's sockets 50, a
// file 25; only the handout may take a second. A run folder that cannot be used ends the start with a
// sentence; one that is full, read-only or removed later costs one line in the log, and the checkpoint or the
// other plugin until it is back.
//
// Two versions of Tandem work together while the major number of their protocol is the same (version.go);
// otherwise each places devices alone and says so.
//
// # What is kept
//
// Each thing that survives a call is a copy of a source. These are: what it is a copy of, what bounds it,
// when it is made anew, and what counts where it and its source differ.
//
//   - Member.announcement: the plugin's devices; resources.MaxDevices; with each Publish; the plugin's word.
//   - Node.machine: sysfs; the machine; with announcements; sysfs, where it can be read.
//   - Member.last, handout file: the last Allocate; one of a kind; with each Allocate; left out after 10
//     s.
//   - Node.returned: Allocates that ended; maxCalls; with each join; open for a second at most.
//   - Node.foreign, joined: the stream; one; with each attempt to join; the server's word.
//   - intent's failure and pause of a source: its last answer; a minute; with the next; it is asked again.
//   - intent's watcher: API server's pods; pods of the node; by watch and list; it frees nothing alone, and
//     fails while the API server refuses to list them.
//   - kubelet.CheckpointReader: device checkpoint; one file; when its content changes; the file.
//   - resources: announcements; resources.MaxResources of MaxDevices; with each announcement; what is held
//     stays, unhealthy, and so does what is of a plugin that is gone when another of its kind announces.
//   - own Allocates: what plugins report; one a resource, 256 without checkpoint; over with the next
//     checkpoint; the checkpoint, then List.
//   - found: who held what at the last question; 4,096 holders beside the checkpoint's; with each question;
//     the kubelet's records. Nobody is refused by it alone.
//   - known: names of UIDs, as List or a source has told; pods of checkpoint and source; with each
//     question; never changes for a UID.
//   - listing: the last List; pods of the node; with each List; List.
//   - plan: a choice; one, planTTL; with each question; what the kubelet allocates.
//   - last: the container of the last Allocate; one; with each Allocate; the checkpoint.
//   - inflight.Allocates: open Allocates; a second; with a plugin's word; List is not read.
//   - survey, for people: the holders; the holders; after surveyTTL, or a decision; the kubelet's records.
//   - history, for people: decisions; history.Most; never; nobody decides by it.
//   - coordinator.json: all of the above but found; store.MaxSize; after each change; read once, at a start.
//   - pairs files: containers' devices; the checkpoint; each Allocate, 10 minutes; the checkpoint.
//
// Who holds what is no state: package holders finds it at each question, in the kubelet's device checkpoint
// and List, by the pods that live and the own Allocates that the kubelet has not written down yet. A question
// that the plan foresees needs no look. A server that starts goes on from coordinator.json, unless it is of
// another boot; an Allocate in it is over where the checkpoint has been written since.
//
// An absence tells something only in a list that is known to be whole. A kubelet that has just started lists
// its pods one by one: what List has not shown yet since then is not free. The checkpoint, once it has been
// written again, and a device that the kubelet offers tell that it is, and the kubelet's own list of pods.
//
// # Who may talk
//
// Root and our own user: the folder has mode 0700, the socket 0600, and both sides check who the other is
// (credentials.go). What they may send, how much at a time and how many of them is bounded (limits.go).
package coordination
