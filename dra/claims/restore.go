// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-k8s/tandem/coordination/file"
	"github.com/tandem-k8s/tandem/dra/pool"
)

// Restore makes the files those of the claims that are prepared: a boot takes them, not the claims, and a
// process that was killed leaves some. To be called at the start, before anything else writes.
func (p *Preparer) Restore(ctx context.Context, state State) error {
	release, err := lock(p.Dir)
	if err != nil {
		return err
	}
	defer release()
	return errors.Join(p.repair(ctx, state), p.tidyTemporaries())
}

// Repair is Restore at any other time: the machine may have what it lacked before, and files may be gone. It
// waits for nobody: its error is ErrBusy where something else is being done.
func (p *Preparer) Repair(ctx context.Context, state State) error {
	release, err := tryLock(p.Dir)
	if err != nil {
		return err
	}
	defer release()
	return p.repair(ctx, state)
}

// repair restores the files of the prepared claims and removes those of all others, under the lock. What
// cannot be known to be of no claim stays: an error of the checkpoint ends it.
func (p *Preparer) repair(ctx context.Context, state State) error {
	known, err := p.known()
	if err != nil {
		return err
	}
	if known, err = p.dropEmpty(known); err != nil {
		return err
	}
	d := newDecision(state, nil, nil)
	environments := map[string]*environment{}
	var problems []error
	for _, c := range known {
		if ctx.Err() != nil {
			return fmt.Errorf("restore files of prepared claims: %w", ctx.Err())
		}
		if len(c.Devices) > 0 {
			problems = append(problems, p.restore(d, known, c, environments))
		}
	}
	return errors.Join(append(problems, p.tidySpecs(known), p.tidyPairs(known))...)
}

// restore writes what is missing or not as it should be of the files of a prepared claim. What cannot be
// looked up any more stays as it is: a container that runs is not helped by less. An error says that a file
// is missing to which the answer to the kubelet refers.
func (p *Preparer) restore(d *decision, all []Claim, c Claim, environments map[string]*environment) error {
	err := p.composeAll(d, all, c, environments)
	if err == nil {
		err = p.put(c, environments)
	}
	if err == nil {
		return nil
	}
	return p.unrestored(c, err)
}

// unrestored is the error of a prepared claim whose files cannot be written, nil where they are all there.
func (p *Preparer) unrestored(c Claim, cause error) error {
	if missing := p.missing(c); missing != "" {
		return fmt.Errorf("restore %s of %s: %w", missing, c, cause)
	}
	p.Log.Warn("a prepared claim keeps the CDI spec that it has",
		"claim", c.Namespace+"/"+c.Name, "error", cause)
	return nil
}

// Complete reports whether all files of the prepared claims are there.
func (p *Preparer) Complete() bool {
	known, err := readCheckpoint(p.Dir)
	return err == nil && !slices.ContainsFunc(known, func(c Claim) bool { return p.missing(c) != "" })
}

// missing is a file of a prepared claim that is not there, or lacks something: its CDI spec, in which all CDI
// devices are that the kubelet was told of, or a pairs file that this mounts; "" where none is.
func (p *Preparer) missing(c Claim) string {
	told := c.ownCDI()
	if len(told) == 0 {
		return ""
	}
	name := p.specPath(c.UID)
	content, err := os.ReadFile(name)
	var spec specs.Spec
	if err != nil || json.Unmarshal(content, &spec) != nil {
		return name
	}
	for _, device := range spec.Devices {
		delete(told, parser.QualifiedName(pool.Driver, cdiClass, device.Name))
		for _, mount := range device.ContainerEdits.Mounts {
			if filepath.Dir(mount.HostPath) != p.Host.PairsDir {
				continue
			}
			if _, err := os.Stat(mount.HostPath); err != nil {
				return mount.HostPath
			}
		}
	}
	if len(told) > 0 {
		return name
	}
	return ""
}

// ownCDI are the CDI devices of the claim's own spec that the kubelet was told of.
func (c Claim) ownCDI() map[string]bool {
	own := map[string]bool{}
	for _, d := range c.Devices {
		for _, name := range d.CDI {
			if strings.HasPrefix(name, pool.Driver+"/"+cdiClass+"=") {
				own[name] = true
			}
		}
	}
	return own
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
