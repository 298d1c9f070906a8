// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/mode"
)

// PrepareRunDir creates the run directory if necessary and checks that it is usable.
func PrepareRunDir(runDir string) error { return checkRunDir(runDir) }

// Enter puts this process into a mode until leave is called, and prepares the run directory. It returns a
// *mode.HeldError if the node is in another mode, according to the lock files in all directories in which
// plugins may coordinate or, for older device plugins without lock files, according to their answer.
func Enter(
	ctx context.Context, own mode.Mode, runDir, kubeletDir string,
) (leave func(), err error) {
	if err := checkRunDir(runDir); err != nil {
		return nil, err
	}
	leave, err = mode.Enter(own, runDir, RunDirs(kubeletDir)...)
	if err != nil || own == mode.DevicePlugin {
		return leave, err
	}
	for _, dir := range append([]string{runDir}, RunDirs(kubeletDir)...) {
		if err := unlessAnswered(ctx, own, dir); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// unlessAnswered returns an error if a server in a run directory is in another mode.
func unlessAnswered(ctx context.Context, own mode.Mode, runDir string) error {
	if !Answers(runDir) {
		return nil
	}
	answer, err := Status(ctx, runDir)
	if err != nil || modeOf(answer.GetMode()) == own {
		return nil // a process that does not answer takes no part in a coordination
	}
	return &mode.HeldError{Mode: modeOf(answer.GetMode()), Seen: "they answer at " + SocketPath(runDir)}
}

// modeOf returns the mode of a server; a server that reports none is a device plugin.
func modeOf(told string) mode.Mode {
	if told == "" {
		return mode.DevicePlugin
	}
	return mode.Mode(told)
}
