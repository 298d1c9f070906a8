// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
)

// Facts returns the library's data on cards and on the links between them.
func (l *Library) Facts(ctx context.Context) (amd.Facts, error) {
	return ask(ctx, l, func() (amd.Facts, error) {
		facts := amd.Facts{VRAM: map[topology.Address]uint64{}, Weights: map[[2]topology.Address]uint64{}}
		cards, err := l.cards()
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
	return ask(ctx, l, func() (map[topology.Address]uint64, error) {
		cards, err := l.cards()
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

// cards returns the handle of every card; for a partitioned card, that of the first partition.
func (l *Library) cards() (map[topology.Address]handle, error) {
	all, err := l.handles()
	if err != nil {
		return nil, err
	}
	cards := map[topology.Address]handle{}
	lowest := map[topology.Address]uint64{}
	for _, h := range all {
		var id uint64
		if err := check("amdsmi_get_gpu_bdf_id", l.bdfID(h, &id)); err != nil {
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
			known = update(known, counts, now)
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

// update returns the errors of the cards after a query. The first count of a card is no increase.
func update(
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
