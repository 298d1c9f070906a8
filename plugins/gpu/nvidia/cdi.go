package nvidia

import (
	"slices"
)

// describe writes the CDI specifications, if any are in use, unless they describe these GPUs already.
func (b *Backend) describe(cards []card) error {
	if some, _ := b.config.CDI(); !some {
		return nil
	}
	s := specs{config: &b.config, channels: b.channels, complete: true, dir: b.machine.CDIRoot, log: b.log}
	for _, c := range cards {
		if c.err != nil {
			s.complete = false
			continue
		}
		if !c.mig {
			s.uuids = append(s.uuids, c.uuid)
		}
		for _, part := range c.slices {
			if part.err == nil {
				s.uuids = append(s.uuids, part.uuid)
			} else {
				s.complete = false
			}
		}
	}
	if b.listed != nil && slices.Equal(b.listed, s.uuids) {
		return nil
	}
	extras, err := b.lib.writeSpecs(s)
	if err != nil {
		return err
	}
	b.listed = append([]string{}, s.uuids...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extras = extras
	return nil
}
