package claims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/file"
)

// Restore makes the files those of the claims that are prepared: a boot takes them, not the claims, and a
// process that was killed leaves some. To be called at the start.
func (p *Preparer) Restore(ctx context.Context, state State) error {
	release, err := lock(p.Dir)
	if err != nil {
		return err
	}
	defer release()
	known, err := p.known()
	if err != nil {
		return err
	}
	d := newDecision(state, nil, nil)
	environments := map[string]*environment{}
	for _, c := range known {
		if ctx.Err() != nil {
			return fmt.Errorf("restore files of prepared claims: %w", ctx.Err())
		}
		if len(c.Devices) > 0 {
			p.restore(d, known, c, environments)
		}
	}
	return errors.Join(p.tidySpecs(known), p.tidyPairs(known), p.tidyTemporaries())
}

// tidyTemporaries removes what was not put in place. Other Preparers wait for the lock; where device plugins
// write too, their files stay, which they may be writing at this moment.
func (p *Preparer) tidyTemporaries() error {
	dirs := []string{p.Dir}
	if p.Alone {
		dirs = append(dirs, p.CDIDir, p.Host.DevinfoDir)
	}
	var problems []error
	for _, dir := range dirs {
		problems = append(problems, file.RemoveTemporaries(dir))
	}
	return errors.Join(problems...)
}

// tidySpecs removes the CDI specs of claims that are not prepared.
func (p *Preparer) tidySpecs(known []Claim) error {
	with, err := p.specs()
	problems := []error{err}
	for _, uid := range with {
		if !(Claim{UID: uid}).in(known) {
			problems = append(problems, p.disk.remove(p.specPath(uid)))
		}
	}
	return errors.Join(problems...)
}

// tidyPairs removes the pairs files of claims that are not prepared. Those of a claim of which no more is
// known than that it has a CDI spec stay.
func (p *Preparer) tidyPairs(known []Claim) error {
	entries, err := os.ReadDir(p.Host.PairsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pairs files: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		group := strings.TrimSuffix(entry.Name(), ".json")
		its := func(c Claim) bool {
			return len(inGroup([]Claim{c}, group)) > 0 ||
				len(c.Devices) == 0 && strings.HasPrefix(group, string(c.UID)+"-")
		}
		if !slices.ContainsFunc(known, its) {
			problems = append(problems, p.disk.remove(filepath.Join(p.Host.PairsDir, entry.Name())))
		}
	}
	return errors.Join(problems...)
}
