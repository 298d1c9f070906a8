// SPDX-License-Identifier: Apache-2.0

// Package machine is a server under QEMU: its construction, its boot and its console, commands in the guest,
// and its logs.
package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/host"
)

// VM is a running machine.
type VM struct {
	service  *host.Service
	progress *host.Progress
	ready    chan struct{} // gets a token whenever the guest's agent starts to listen
}

// PowerOn starts the machine and waits until its kubelet and its agent run. Its console goes to logs in a
// folder.
func PowerOn(ctx context.Context, c *build.Cache, s Shape, o Settings, folder string) (*VM, error) {
	console, log, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := qemu(c, s, o)
	cmd.Stdout = log
	service, err := host.StartService(cmd, filepath.Join(folder, "qemu.log"))
	log.Close()
	if err != nil {
		return nil, err
	}
	v := &VM{service: service, progress: c.Progress, ready: make(chan struct{}, 1)}
	go v.read(console, filepath.Join(folder, "console.log"))
	return v, v.waitReady(ctx)
}

// read logs the console and shows the lines of the guest's first process.
func (v *VM) read(console io.ReadCloser, file string) {
	defer console.Close()
	log, err := os.Create(file)
	if err != nil {
		v.progress.Say("%v", err)
		return
	}
	defer log.Close()
	lines := bufio.NewScanner(console)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		_, message, ok := strings.Cut(lines.Text(), "guest: ")
		if ok {
			v.progress.Say("  guest: %s", strings.TrimSpace(message))
		}
		if ok && strings.TrimSpace(message) == "ready" {
			v.ready <- struct{}{}
		}
	}
}

func (v *VM) waitReady(ctx context.Context) error {
	select {
	case <-v.ready:
		return nil
	case <-v.service.Done():
		return errors.Join(errors.New("see console.log in run"), v.service.Ended())
	case <-ctx.Done():
		return errors.New("the guest is not ready: see console.log in run")
	}
}

// Stop switches the machine off.
func (v *VM) Stop() { v.service.Stop() }
