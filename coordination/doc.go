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
// PodResources List, read inside GetPreferredAllocation (never inside Allocate, where it can make the kubelet hand a device
// out twice), shows every pod from just before its admission. Pods that are new since the last look mean that a new pod
// is asking; none new means that the container that got the newest allocation asks for its other half, or that the next container of its
// pod does, which has to be taken for it. Only where the kubelet did not ask for the first half (it does not when there is
// no choice) can a look leave two containers possible; the time since the last Allocate then decides. See observe.go.
//
// # When something is away
//
// It changes the quality of a placement, never its success: without the server a plugin chooses among its own devices,
// without PodResources the coordinator judges by time, and a question is answered within 100 ms either way.
package coordination
