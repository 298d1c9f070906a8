// Package coordination makes one decision of the kubelet's separate questions.
//
// For a container with GPUs and VFs the kubelet asks each plugin on its own, in random order, and says neither for which
// container nor what else it wants. Both plugins pass the question on to one coordinator, which chooses the
// devices of all resources at once, answers for the resource that was asked, and keeps the rest as a plan.
//
//	kubelet ── GetPreferredAllocation ──▶ tandem-gpu ── Prefer ──▶ coordinator: who asks? what is free? choose GPUs and VFs
//	        ◀─ four GPUs ──────────────── tandem-gpu ◀─ four GPUs ─┘            plan: four VFs
//	kubelet ── Allocate ────────────────▶ tandem-gpu ── Allocated ▶ coordinator: ledger
//	kubelet ── GetPreferredAllocation ──▶ tandem-rdma ─ Prefer ──▶ coordinator: the same container; VFs for its four GPUs
//	kubelet ── Allocate ────────────────▶ tandem-rdma ─ Allocated ▶ coordinator: ledger; the order of the VFs
//
// # Who serves
//
// Each plugin is a [Node]: a client of <run-dir>/coordination.sock and, while it holds <run-dir>/lock (flock), its server. When
// the holder dies the kernel gives the lock up, the other plugin takes it and both announce their devices anew. There is no third process
// and no order of start. The plugin that serves asks itself without the socket (local.go).
//
// # Who reads, who writes
//
//   - A plugin announces its devices over Join ([Member.Publish]), tells the kubelet of them once the server goes by them
//     ([Member.AwaitTaken]), asks Prefer ([Member.Prefer]) and reports Allocated ([Member.Allocated]).
//   - The ledger says which device is whose. It learns of a device taken from Allocated and from PodResources, and of a
//     device free from the ids that the kubelet offers and from PodResources. There is no other sign: the kubelet has no Deallocate.
//   - A device that another pod has at that moment, as PodResources Get confirms, is refused in Allocate with a sentence
//     (conflict.go): the kubelet can hand one out twice (kubernetes PR 137534). Where the kubelet cannot confirm it (Get is on
//     from 1.34) the container gets the device and the log has an error.
//   - A plan is kept for the half that was not asked. It is replaced by the next question, since the kubelet admits one
//     container at a time, and expires by itself.
//
// # Who is asking
//
// The kubelet does not say. It writes its device checkpoint once all resources of a container are allocated, before it turns to
// the next container. So a question belongs to the container of the newest Allocate if, and only if, the checkpoint still shows the devices of
// that Allocate with whom it showed them then (kubelet.ReadCheckpoint). That costs the kubelet nothing and is exact.
//
// Where a source of intent tells what the pods of the node want (package intent), the container itself is known: the one that lacks what
// is asked for, of the one pod that has not been admitted. The first question is then answered for all that the container wants, one
// half for each resource name, and what it does not want is not planned for. See asker.go and wanted.go. The same tells whom
// the kubelet gives devices without a question, what a scheduler chose, and whether the pod is to be refused when its pairs
// cannot be on one switch each (alignment.go). And where VFs have no NUMA node, the CPUs that the container is to have alone say which
// one its GPUs will be on (cpus.go).
//
// PodResources List, read inside GetPreferredAllocation (never while an Allocate of either plugin is open, which can make the kubelet hand
// a device out twice: inflight.go), shows the owners and which devices became free. It also shows every pod from just before its admission, so that
// without the checkpoint pods that are new since the last look still tell a new pod from the second half of the one
// before; only where that leaves two containers possible does the time since the last Allocate decide, and the log says so. See
// observe.go. Where the checkpoint proves that the second half is asked for which the plan of the first one foresees, neither it
// nor a source of intent is asked again (foreseen.go).
//
// # What outlives a process
//
// The ledger is written to <run-dir>/ledger.json after every change, by a goroutine of its own, so that no answer waits for a disk
// (store.go). Whoever serves next goes on from there, in the middle of an admission if need be: reconciled with the kubelet's
// own device checkpoint, then with PodResources and the plugins that join (recover.go). A file that is damaged, of another
// version or not ours alone is set aside as ledger.json.bad; without one the kubelet tells who holds what. It also tells a
// plugin that starts anew where the devices are that have vanished and that the kubelet's record still needs: they stay listed, as
// unhealthy ([Node.Listed]).
//
// A server ends in order: it turns its own plugins away, answers what is in flight, decides nothing any more, and saves the ledger then.
//
// The last 256 decisions are kept in memory, for "tandem explain" (decision.go). Whoever counts them is told as they are made
// (observer.go), and can ask what a node is and whether it lives (alive.go). People are told of devices as free once their containers
// have ended, which the kubelet is asked about (ended.go); the ledger keeps them until the kubelet frees them.
//
// # What a container is told
//
// A container can ask for its pairs in a file (pairs.go, pairsfile.go). The RDMA plugin mounts it with the VFs in it; the
// coordinator adds the GPUs before it answers the Allocated that completes the container, in whichever order the halves
// come. The kubelet's checkpoint keeps the mount for as long as the container lives, so the files are tidied by it (tidy.go).
//
// # When something is away
//
// It changes the quality of a placement, never its success, and so does a mistake of ours: a panic costs one answer, one source or
// one server, and never the daemon (package survive). Without the server a plugin makes the best choice that it can make alone
// (alone.go): by the PCI tree, and by what the other plugin gave last, which it reads in the run folder (handout.go). Without
// PodResources the coordinator judges by time, and a question is answered within 100 ms either way: a peer that hangs costs 80 ms,
// the kubelet's sockets 50, a file 25; only the handout may take a second. A run folder that cannot be used ends the start with a sentence; one that is
// full, read-only or removed later costs one line in the log, and the checkpoint or the other plugin until it is back.
//
// Two versions of Tandem work together while the major number of their protocol is the same (version.go); otherwise each places
// devices alone and says so.
//
// # Who may talk
//
// Root and our own user: the folder has mode 0700, the socket 0600, and both sides check who the other is (credentials.go). What
// they may send, how much at a time and how many of them is bounded (limits.go).
package coordination
