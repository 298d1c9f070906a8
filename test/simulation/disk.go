// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/test/before"
)

// Faults of files at the death of their writer.
const (
	outdatedFile = "a killed server leaves an outdated file"
	tornFile     = "a killed plugin leaves a torn file"
	lostFile     = "a killed plugin leaves no file"
)

// Damages, as what a killed process leaves. The name of the file follows a colon.
const (
	outdated = "outdated"
	torn     = "torn:"
	newer    = "newer:"
	deep     = "deep:"
	lost     = "lost:"
)

// stateFile returns the coordinator's file.
func (n *Node) stateFile() string { return filepath.Join(n.runDir(), admission.StateFile) }

// remember keeps the coordinator's file of this moment, for a server that dies before its next write.
func (s *Simulation) remember() {
	if s.raging {
		s.unwritten, _ = os.ReadFile(s.stateFile()) // none without a file
	}
}

// drawDamage draws what a killed process leaves of its files, "" for no damage.
func (s *Simulation) drawDamage() (leaves string, err error) {
	var damages []string
	if s.strikes(chanceOfLostWrite) {
		damages = append(damages, outdated)
	}
	if s.strikes(chanceOfDamage) {
		files, err := filepath.Glob(filepath.Join(s.runDir(), "*.json"))
		if err != nil {
			return "", fmt.Errorf("find files: %w", err)
		}
		if len(files) > 0 {
			slices.Sort(files)
			file := filepath.Base(files[s.faults.IntN(len(files))])
			damages = append(damages, []string{torn, lost}[s.faults.IntN(2)]+file)
		}
	}
	return strings.Join(damages, "+"), nil
}

// damage damages the files of a killed process.
func (s *Simulation) damage(served bool, leaves string) error {
	for damage := range strings.SplitSeq(leaves, "+") {
		switch damage {
		case "":
		case outdated:
			if served && s.unwritten != nil {
				s.note(outdatedFile)
				s.forgotten = len(s.unrecorded()) > 0
				if err := replace(s.stateFile(), s.unwritten); err != nil {
					return err
				}
			}
		default:
			if err := s.damageFile(damage); err != nil {
				return err
			}
		}
	}
	return nil
}

// damageFile tears or removes a file that is there, or gives the file another version or layout.
func (s *Simulation) damageFile(damage string) error {
	how, file, _ := strings.Cut(damage, ":")
	if s.noCheckpoint && (how+":" == lost || how+":" == torn) {
		return nil // nobody would know which devices have to stay in a plugin's list
	}
	name := filepath.Join(s.runDir(), file)
	if name == s.stateFile() {
		s.forgotten = len(s.unrecorded()) > 0
	}
	content, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("damage a file: %w", err)
	case how+":" == lost:
		s.note(lostFile)
		s.trace("%s is lost", file)
		return os.Remove(name)
	case how+":" == torn:
		s.note(tornFile)
		s.trace("%s is torn", file)
		return replace(name, content[:len(content)/2])
	case how+":" == newer:
		return replace(name, before.Newer(content))
	case how+":" == deep:
		return replace(name, deeperFile(content))
	default:
		return fmt.Errorf("damage a file: %q is unknown", damage)
	}
}

// replace replaces a file: a plugin that starts meanwhile finds the file before or the file after.
func replace(name string, content []byte) error {
	neighbour := name + ".new"
	if err := os.WriteFile(neighbour, content, 0o600); err != nil {
		return err
	}
	return os.Rename(neighbour, name)
}
