// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
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

// Service is a program that runs until stopped. Its output goes to a file.
type Service struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed at its end
}

// StartService starts a program. Its standard error, and its output by default, go to a new file.
func StartService(cmd *exec.Cmd, log string) (*Service, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	s := &Service{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state is in done
		close(s.done)
	}()
	return s, nil
}

// Done returns a channel that is closed when the program has ended.
func (s *Service) Done() <-chan struct{} { return s.done }

// Stop signals the program to end, and kills it after a while.
func (s *Service) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// Ended returns the error of a service that should be running.
func (s *Service) Ended() error {
	content, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s ended: %s", filepath.Base(s.cmd.Path), Tail(string(content), 2000))
}
