// SPDX-License-Identifier: Apache-2.0

// Package before builds the programs of the version before this one, which an upgrade replaces and a way back
// brings again. They are built from the repository's own history.
package before

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Commit is the version before: the last commit that nodes can run. A change of the files or protocols that
// the daemons share is tested against this commit, and afterwards becomes this commit itself.
const Commit = "c94aa67ac6800d08063810b5404c58c5056aa258"

// Build builds programs of the directory cmd as they are in Commit, in a folder that is kept, and returns
// the folder of the programs. Root is the root of the repository, folder a folder for everything that is
// made. The error says what to do if the clone has no such commit.
func Build(root, folder string, names ...string) (bin string, err error) {
	source := filepath.Join(folder, "source")
	bin = filepath.Join(folder, "bin")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", fmt.Errorf("build the version before: %w", err)
	}
	if err := run(root, "git", "cat-file", "-e", Commit); err != nil {
		return "", fmt.Errorf("find commit %s; a shallow clone lacks it: git fetch --unshallow: %w", Commit, err)
	}
	archive := filepath.Join(folder, "source.tar")
	if err := run(root, "git", "archive", "--output="+archive, Commit); err != nil {
		return "", err
	}
	if err := run(source, "tar", "-xf", archive); err != nil {
		return "", err
	}
	arguments := []string{"build", "-buildvcs=false", "-o", bin + string(filepath.Separator)}
	for _, name := range names {
		arguments = append(arguments, "./cmd/"+name)
	}
	return bin, run(source, "go", arguments...)
}

// run runs a command in a folder.
func run(folder, name string, arguments ...string) error {
	command := exec.Command(name, arguments...)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %v: %w\n%s", name, arguments, err, output)
	}
	return nil
}
