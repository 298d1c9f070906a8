// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/store"
)

// Faults of files at the death of their writer.
const (
	outdatedFile = "a killed server leaves an outdated file"
	tornFile     = "a killed plugin leaves a torn file"
	lostFile     = "a killed plugin leaves no file"
)

// stateFile returns the coordinator's file.
func (n *Node) stateFile() string { return filepath.Join(n.runDir(), store.FileName) }

// remember keeps the coordinator's file of this moment, for a server that dies before its next write.
func (s *Simulation) remember() {
	if s.raging {
		s.unwritten, _ = os.ReadFile(s.stateFile()) // none without a file
	}
}

// damage damages the files of a killed process, by chance.
func (s *Simulation) damage(served bool) error {
	if served && s.strikes(chanceOfLostWrite) && s.unwritten != nil {
		s.note(outdatedFile)
		if err := replace(s.stateFile(), s.unwritten); err != nil {
			return err
		}
	}
	if !s.strikes(chanceOfDamage) {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.runDir(), "*.json"))
	if err != nil || len(files) == 0 {
		return err
	}
	slices.Sort(files)
	file := files[s.faults.IntN(len(files))]
	if s.faults.IntN(2) == 0 {
		s.note(lostFile)
		s.trace("%s is lost", filepath.Base(file))
		return os.Remove(file)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("damage a file: %w", err)
	}
	s.note(tornFile)
	s.trace("%s is torn", filepath.Base(file))
	return replace(file, content[:len(content)/2])
}

// replace replaces a file.
func replace(name string, content []byte) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace a file: %w", err)
	}
	return os.WriteFile(name, content, 0o600)
}
