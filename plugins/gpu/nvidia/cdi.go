package nvidia

import (
	"log/slog"
	"os"
	"path"
	"slices"
)

// specs says which CDI specifications to write, and how.
type specs struct {
	config   *Config
	channels []channel
	uuids    []string // of the GPUs and MIG devices that answer
	complete bool     // those are all there are
	dir      string
	log      *slog.Logger
}

// modes are what GPUs can be given beside the GPUs themselves, in the order in which containers get them.
func (s specs) modes() []string {
	var list []string
	for _, m := range []struct {
		name    string
		enabled bool
	}{{"gdrcopy", s.config.GDRCopy}, {"gds", s.config.GDS}, {"mofed", s.config.MOFED}} {
		if m.enabled {
			list = append(list, m.name)
		}
	}
	return list
}

// devRoot is where this process finds the driver's device nodes: below the driver root if that has any.
func (s specs) devRoot() string {
	if info, err := os.Stat(path.Join(s.config.ContainerDriverRoot, "dev")); err == nil && info.IsDir() {
		return s.config.ContainerDriverRoot
	}
	return "/"
}

// describe writes the CDI specifications, if any are in use, unless they describe these GPUs already.
func (b *Backend) describe(cards []card) error {
	if some, _ := b.config.cdi(); !some {
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
