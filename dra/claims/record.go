package claims

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// unprepare unprepares claims, under the lock. It returns them, as far as they were prepared, and those that
// are left.
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

// forget unprepares claims: their files go first, so that the checkpoint has all that there are. It returns
// the claims that are left.
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

// known reads the claims that are prepared. A checkpoint that cannot be read is set aside, and nothing is
// prepared then but what has a CDI spec, of which no more is known. Nothing is handed out twice for that:
// what a claim gets nobody else can be allocated. Pods that run keep their files, and the kubelet has the
// names of their CDI devices.
func (p *Preparer) known() ([]Claim, error) {
	known, err := readCheckpoint(p.Dir)
	if !errors.Is(err, errUnreadable) {
		return known, err
	}
	p.Log.Error("set the checkpoint of claims aside; claims that are prepared keep their files until they end",
		"file", filepath.Join(p.Dir, BadName), "error", err)
	with, err := p.specs()
	if err != nil {
		return nil, err
	}
	for _, uid := range with {
		known = append(known, Claim{UID: uid})
	}
	if err := os.Rename(filepath.Join(p.Dir, FileName), filepath.Join(p.Dir, BadName)); err != nil {
		return nil, fmt.Errorf("set the checkpoint aside: %w", err)
	}
	return known, p.save(known)
}
