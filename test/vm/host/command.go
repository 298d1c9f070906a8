// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// InFolder returns a command that runs in a folder.
func InFolder(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	return cmd
}

// Run runs a program and returns its output. The error of a failure includes the output.
func Run(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		said := Tail(stderr.String()+stdout.String(), 2000)
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, said)
	}
	return stdout.Bytes(), nil
}

// Tail returns the end of a text.
func Tail(text string, most int) string {
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "… " + text[len(text)-most:]
	}
	return text
}
