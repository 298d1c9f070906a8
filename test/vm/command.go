package main

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

// command runs a program to its end. What it printed is part of the error where it fails.
func command(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, tail(stderr.String()+stdout.String(), 2000))
	}
	return stdout.Bytes(), nil
}

// tail is the end of a text.
func tail(text string, most int) string {
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "… " + text[len(text)-most:]
	}
	return text
}

// tool is a program of the packages, run where they were unpacked: by their own loader, with their own libraries.
func tool(root, program string, args ...string) *exec.Cmd {
	return toolAs(root, program, filepath.Base(program), args...)
}

// toolAs is a tool that goes by what it is called.
func toolAs(root, program, name string, args ...string) *exec.Cmd {
	libraries := filepath.Join(root, "lib/x86_64-linux-gnu") + ":" + filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	loader := []string{"--library-path", libraries, "--argv0", name, filepath.Join(root, program)}
	return exec.Command(filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), append(loader, args...)...)
}

// service is a program that runs until it is stopped. Its output goes to a file.
type service struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

func startService(cmd *exec.Cmd, log string) (*service, error) {
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
	s := &service{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // whoever needs it sees done
		close(s.done)
	}()
	return s, nil
}

// stop asks the program to end, and kills it after a while.
func (s *service) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// ended is what to say of a service that should be running.
func (s *service) ended() error {
	content, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s ended: %s", filepath.Base(s.cmd.Path), tail(string(content), 2000))
}
