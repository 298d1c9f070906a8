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
// the holder dies the kernel gives the lock up, the other plugin takes it and both announce their devices anew. There is no third process and no order of start.
//
// # Who reads, who writes
//
//   - A plugin announces its devices over Join ([Member.Publish]), asks Prefer ([Member.Prefer]) and reports Allocated
//     ([Member.Allocated]).
//   - The ledger says which device is whose. It learns of a device taken from Allocated and from PodResources, and of a
//     device free from the ids that the kubelet offers and from PodResources. There is no other sign: the kubelet has no Deallocate.
//   - A plan is kept for the half that was not asked. It is replaced by the next question, since the kubelet admits one
//     container at a time, and expires by itself.
//
// # Who is asking
//
// The kubelet does not say. It writes its device checkpoint once all resources of a container are allocated, before it turns to
// the next container. So a question belongs to the container of the newest Allocate if, and only if, the checkpoint still shows the devices of
// that Allocate with whom it showed them then (kubelet.ReadCheckpoint). That costs the kubelet nothing and is exact.
//
// PodResources List, read inside GetPreferredAllocation (never inside Allocate, where it can make the kubelet hand a device
// out twice), shows the owners and which devices became free. It also shows every pod from just before its admission, so that
// without the checkpoint pods that are new since the last look still tell a new pod from the second half of the one
// before; only where that leaves two containers possible does the time since the last Allocate decide, and the log says so. See
// observe.go.
//
// # What a container is told
//
// A container can ask for its pairs in a file (pairs.go, pairsfile.go). The RDMA plugin mounts it with the VFs in it; the
// coordinator adds the GPUs before it answers the Allocated that completes the container, in whichever order the halves
// come. The kubelet's checkpoint keeps the mount for as long as the container lives, so the files are tidied by it (tidy.go).
//
// # When something is away
//
// It changes the quality of a placement, never its success: without the server a plugin chooses among its own devices,
// without PodResources the coordinator judges by time, and a question is answered within 100 ms either way.
package coordination
