// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// unprepare unprepares claims, under the lock. It returns the claims that were prepared, and the remaining
// claims.
func (p *Preparer) unprepare(claims []kubeletplugin.NamespacedObject) (gone, left []Claim, err error) {
	release, err := lock(p.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	known, err := p.known()
	if err != nil {
		return nil, nil, err
	}
	for _, claim := range claims {
		gone = append(gone, find(known, claim.UID))
	}
	left, err = p.forget(known, gone)
	return gone, left, err
}

// forget unprepares claims: it removes their files first, so that the checkpoint contains all claims with
// files. It returns the remaining claims.
func (p *Preparer) forget(known, gone []Claim) (left []Claim, err error) {
	left = slices.DeleteFunc(slices.Clone(known), func(c Claim) bool { return c.in(gone) })
	for _, c := range gone {
		if err := p.disk.remove(p.specPath(c.UID)); err != nil {
			return known, err
		}
		for _, first := range c.firsts() {
			if len(inGroup(left, first.Group)) > 0 {
				continue
			}
			if err := p.disk.remove(p.pairsPath(first.Group)); err != nil {
				return known, err
			}
		}
	}
	if len(left) == len(known) {
		return left, nil
	}
	return left, p.save(left)
}

func (p *Preparer) pairsPath(group string) string {
	return filepath.Join(p.Host.PairsDir, group+".json")
}

func (p *Preparer) save(claims []Claim) error {
	content, err := encodeCheckpoint(claims)
	if err != nil {
		return err
	}
	return p.disk.keep(filepath.Join(p.Dir, FileName), content)
}

// known reads the prepared claims. A checkpoint that cannot be read, or that is missing although CDI specs
// exist, is not an empty checkpoint: then every claim with a CDI spec counts as prepared, with unknown
// devices. This assigns no device twice, because the scheduler allocates a claim's devices to no other claim.
// Running pods keep their files, and the kubelet has the names of their CDI devices.
func (p *Preparer) known() ([]Claim, error) {
	name := filepath.Join(p.Dir, FileName)
	content, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.adopt(nil, errors.New("there is none"))
	case err != nil:
		return nil, fmt.Errorf("read prepared claims: %w", err)
	}
	known, err := decodeCheckpoint(name, content)
	if err != nil {
		return p.adopt(content, err)
	}
	return known, nil
}

// adopt writes a checkpoint of the claims with a CDI spec, in place of a damaged or missing one. It first
// copies the damaged checkpoint and does not move it: if the process dies or the disk is full, one of both
// files exists, and the next call starts again.
func (p *Preparer) adopt(damaged []byte, cause error) ([]Claim, error) {
	with, err := p.specs()
	if err != nil || damaged == nil && len(with) == 0 {
		return nil, err
	}
	if damaged != nil {
		if err := p.disk.keep(filepath.Join(p.Dir, BadName), damaged); err != nil {
			return nil, fmt.Errorf("keep a copy of the damaged checkpoint: %w", err)
		}
	}
	known := make([]Claim, 0, len(with))
	for _, uid := range with {
		known = append(known, Claim{UID: uid})
	}
	if err := p.save(known); err != nil {
		return nil, err
	}
	p.Log.Error("the checkpoint of claims was replaced; claims with a CDI spec keep their files until they end",
		"claims", len(known), "copy", filepath.Join(p.Dir, BadName), "error", cause)
	return known, nil
}

// dropEmpty removes adopted claims whose CDI spec is gone too, as after a boot: nothing is left of them.
func (p *Preparer) dropEmpty(known []Claim) ([]Claim, error) {
	left := slices.DeleteFunc(slices.Clone(known), func(c Claim) bool {
		if len(c.Devices) > 0 {
			return false
		}
		_, err := os.Stat(p.specPath(c.UID))
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(left) == len(known) {
		return known, nil
	}
	return left, p.save(left)
}
