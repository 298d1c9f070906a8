package coordination

import (
	"context"

	"github.com/tandem-k8s/tandem/coordination/mode"
)

// PrepareRunDir makes the run folder if need be, and makes sure that it can be used.
func PrepareRunDir(runDir string) error { return checkRunDir(runDir) }

// Enter puts this process into a mode until leave is called, and prepares the run folder for that. It fails
// with a *mode.HeldError where the node is in another mode: by the lock files in any folder in which plugins
// may meet or, of device plugins of a version that had none of these, by their answer.
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

// unlessAnswered fails where somebody serves in a run folder who is in another mode.
func unlessAnswered(ctx context.Context, own mode.Mode, runDir string) error {
	if !Answers(runDir) {
		return nil
	}
	answer, err := Status(ctx, runDir)
	if err != nil || modeOf(answer.GetMode()) == own {
		return nil // what does not answer hands nothing out together with others
	}
	return &mode.HeldError{Mode: modeOf(answer.GetMode()), Seen: "they answer at " + SocketPath(runDir)}
}

// modeOf is the mode that a server tells; one that tells none is a device plugin.
func modeOf(told string) mode.Mode {
	if told == "" {
		return mode.DevicePlugin
	}
	return mode.Mode(told)
}
