// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"context"
	"errors"
	"fmt"

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

// Errors returns a source of health: a card is unhealthy if its uncorrectable errors have increased since the
// last query.
func (l *Library) Errors() amd.Health {
	var before map[topology.Address]uint64
	return func(ctx context.Context) (map[string]bool, error) {
		now, err := l.Uncorrectable(ctx)
		if err != nil {
			return nil, fmt.Errorf("count memory errors: %w", err)
		}
		health := map[string]bool{}
		for address, count := range now {
			was, known := before[address]
			health[address.String()] = !known || count <= was
		}
		before = now
		return health, nil
	}
}
