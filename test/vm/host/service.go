// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

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
