// SPDX-License-Identifier: Apache-2.0

// Package smi queries AMD's system management library, libamd_smi, if installed. It loads the library at run
// time without cgo. After a call that hangs, the caller returns, the thread stays, and no further call is
// made until the first one ends.
//
// Functions and types are those of amd_smi/amdsmi.h (ROCm/amdsmi), limited to the common part of all
// versions. The type of a link is not in that part: the numbers for PCI Express and XGMI were swapped.
package smi

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// Of amdsmi.h.
const (
	initGPUs   = 1 << 1 // AMDSMI_INIT_AMD_GPUS
	memoryVRAM = 0      // AMDSMI_MEM_TYPE_VRAM
)

// errorCount is amdsmi_error_count_t: 64-bit counters, the second for uncorrectable errors, with room for
// additions of later versions.
type errorCount [32]uint64

func (e *errorCount) uncorrectable() uint64 { return e[1] }

// handle is an amdsmi_socket_handle or amdsmi_processor_handle: opaque, and not a Go pointer.
type handle uintptr

// Library is libamd_smi, loaded.
type Library struct {
	turn system.Turn // of a call

	ready bool // initialised

	initialise  func(flags uint64) int32
	sockets     func(count *uint32, handles *handle) int32
	processors  func(socket handle, count *uint32, handles *handle) int32
	bdfID       func(processor handle, id *uint64) int32
	memoryTotal func(processor handle, kind int32, bytes *uint64) int32
	eccCount    func(processor handle, count *errorCount) int32
	linkWeight  func(a, b handle, weight *uint64) int32
}

// Open loads the library with a name or path that dlopen accepts. The library stays loaded.
func Open(name string) (*Library, error) {
	loaded, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	l := &Library{turn: make(system.Turn, 1)}
	for symbol, function := range map[string]any{
		"amdsmi_init":                    &l.initialise,
		"amdsmi_get_socket_handles":      &l.sockets,
		"amdsmi_get_processor_handles":   &l.processors,
		"amdsmi_get_gpu_bdf_id":          &l.bdfID,
		"amdsmi_get_gpu_memory_total":    &l.memoryTotal,
		"amdsmi_get_gpu_total_ecc_count": &l.eccCount,
		"amdsmi_topo_get_link_weight":    &l.linkWeight,
	} {
		address, err := purego.Dlsym(loaded, symbol)
		if err != nil {
			return nil, fmt.Errorf("load %s: it has no %s", name, symbol)
		}
		purego.RegisterFunc(function, address)
	}
	return l, nil
}

var errBusy = errors.New("libamd_smi has not answered an earlier question yet")

// askLibrary calls question, one call at a time per library, and waits for its answer until ctx is done.
func askLibrary[T any](ctx context.Context, l *Library, question func() (T, error)) (answer T, err error) {
	if l.turn.Busy() {
		return answer, errBusy
	}
	answer, err = system.AwaitResult(ctx, system.CallInTurn(ctx, l.turn, func() (answer T, err error) {
		if err = l.initialiseOnce(); err == nil {
			answer, err = question()
		}
		return answer, err
	}))
	if errors.Is(err, system.ErrLate) {
		return answer, fmt.Errorf("ask libamd_smi: %w", ctx.Err())
	}
	return answer, err
}

// initialiseOnce initialises the library with the first question.
func (l *Library) initialiseOnce() error {
	if l.ready {
		return nil
	}
	if err := checkStatus("amdsmi_init", l.initialise(initGPUs)); err != nil {
		return err
	}
	l.ready = true
	return nil
}

// checkStatus converts an amdsmi_status_t, 0 for success, to an error.
func checkStatus(function string, status int32) error {
	if status != 0 {
		return fmt.Errorf("%s: status %d", function, uint32(status))
	}
	return nil
}

// listProcessors lists the processors of all sockets.
func (l *Library) listProcessors() ([]handle, error) {
	sockets, err := listHandles("amdsmi_get_socket_handles", l.sockets)
	if err != nil {
		return nil, err
	}
	var all []handle
	for _, socket := range sockets {
		processors, err := listHandles("amdsmi_get_processor_handles", func(count *uint32, handles *handle) int32 {
			return l.processors(socket, count, handles)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, processors...)
	}
	return all, nil
}

// listHandles calls a function that returns the number of handles if called with no room for handles.
func listHandles(function string, get func(count *uint32, handles *handle) int32) ([]handle, error) {
	var count uint32
	if err := checkStatus(function, get(&count, nil)); err != nil || count == 0 {
		return nil, err
	}
	handles := make([]handle, count)
	if err := checkStatus(function, get(&count, unsafe.SliceData(handles))); err != nil {
		return nil, err
	}
	return handles[:min(int(count), len(handles))], nil
}

// Facts returns the library's data on cards and on the links between them.
func (l *Library) Facts(ctx context.Context) (amd.Facts, error) {
	return askLibrary(ctx, l, func() (amd.Facts, error) {
		facts := amd.Facts{VRAM: map[topology.Address]uint64{}, Weights: map[[2]topology.Address]uint64{}}
		cards, err := l.findCards()
		if err != nil {
			return facts, err
		}
		for a, from := range cards {
			var bytes uint64
			if l.memoryTotal(from, memoryVRAM, &bytes) != 0 {
				bytes = 0
			}
			facts.VRAM[a] = bytes
			for b, to := range cards {
				var weight uint64
				if a.Compare(b) < 0 && l.linkWeight(from, to, &weight) == 0 {
					facts.Weights[[2]topology.Address{a, b}] = weight
				}
			}
		}
		return facts, nil
	})
}

// Uncorrectable returns the number of uncorrectable memory errors of each card since its driver was loaded.
// Cards without ECC are omitted.
func (l *Library) Uncorrectable(ctx context.Context) (map[topology.Address]uint64, error) {
	return askLibrary(ctx, l, func() (map[topology.Address]uint64, error) {
		cards, err := l.findCards()
		if err != nil {
			return nil, err
		}
		counts := map[topology.Address]uint64{}
		for address, card := range cards {
			var count errorCount
			if l.eccCount(card, &count) == 0 {
				counts[address] = count.uncorrectable()
			}
		}
		return counts, nil
	})
}

// findCards returns the handle of every card; for a partitioned card, that of the first partition.
func (l *Library) findCards() (map[topology.Address]handle, error) {
	all, err := l.listProcessors()
	if err != nil {
		return nil, err
	}
	cards := map[topology.Address]handle{}
	lowest := map[topology.Address]uint64{}
	for _, h := range all {
		var id uint64
		if err := checkStatus("amdsmi_get_gpu_bdf_id", l.bdfID(h, &id)); err != nil {
			return nil, err
		}
		address := amd.CardAddress(id>>32, id&0xffff)
		if _, known := cards[address]; !known || id < lowest[address] {
			cards[address], lowest[address] = h, id
		}
	}
	if len(cards) == 0 {
		return nil, errors.New("libamd_smi knows no GPU")
	}
	return cards, nil
}

// cardErrors are the uncorrectable errors of a card.
type cardErrors struct {
	count uint64
	since time.Time // of the last increase; zero for none
}

// after returns the errors after a query. A decreased count is that of a driver that was loaded again.
func (e cardErrors) after(count uint64, now time.Time) cardErrors {
	switch {
	case count < e.count:
		return cardErrors{count: count}
	case count > e.count:
		return cardErrors{count, now}
	default:
		return e
	}
}

// Errors returns a source of health: a card is unhealthy for some time after an increase of its uncorrectable
// errors, however often the source is queried, and while the library does not answer.
func (l *Library) Errors(lasting time.Duration) amd.Health {
	known := map[topology.Address]cardErrors{}
	return func(ctx context.Context) (map[string]bool, error) {
		counts, err := l.Uncorrectable(ctx)
		now := time.Now()
		if err == nil {
			known = updateErrors(known, counts, now)
		}
		health, anyFault := map[string]bool{}, false
		for address, e := range known {
			fault := !e.since.IsZero() && (e.since.Equal(now) || now.Sub(e.since) < lasting)
			health[address.String()] = !fault
			anyFault = anyFault || fault
		}
		if err != nil && !anyFault {
			return nil, fmt.Errorf("count memory errors: %w", err)
		}
		return health, nil
	}
}

// updateErrors returns the errors of the cards after a query. The first count of a card is no increase.
func updateErrors(
	known map[topology.Address]cardErrors, counts map[topology.Address]uint64, now time.Time,
) map[topology.Address]cardErrors {
	updated := make(map[topology.Address]cardErrors, len(counts))
	for address, count := range counts {
		before, wasKnown := known[address]
		if !wasKnown {
			before.count = count
		}
		updated[address] = before.after(count, now)
	}
	return updated
}
