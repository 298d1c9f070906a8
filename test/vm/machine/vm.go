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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

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

// Agent is the address that QEMU forwards to the guest's agent.
const Agent = "http://10.0.2.15:8080"

// Run runs a shell script in the guest and returns its output.
func (v *VM) Run(ctx context.Context, script string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, Agent+"/run", strings.NewReader(script))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	output, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if code := response.Trailer.Get("Exit-Code"); code != "0" {
		said := host.Tail(string(output), 1000)
		return string(output), fmt.Errorf("in the guest: %s: exit code %s: %s", script, code, said)
	}
	return string(output), nil
}

// Reboot restarts the machine through its kernel, with the same disk, and waits until it is ready. Usually
// the machine is gone before its answer, and nothing ends the connection.
func (v *VM) Reboot(ctx context.Context) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(asking, http.MethodPost, Agent+"/reboot", http.NoBody)
	if err != nil {
		return err
	}
	go func() {
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
		}
	}()
	defer http.DefaultClient.CloseIdleConnections()
	return v.waitReady(ctx)
}

// podLogs prints the logs of all containers.
const podLogs = "for f in $(find /var/log/pods -name '*.log'); do echo \"== $f\"; cat $f; done"

// Collect keeps the guest's logs of the kubelet and containerd, and of all containers.
func (v *VM) Collect(folder string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, script := range map[string]string{
		"kubelet.log":    "cat /var/log/kubelet.log",
		"containerd.log": "cat /var/log/containerd.log",
		"pods.log":       podLogs,
		"dmesg.log":      "dmesg",
	} {
		v.write(ctx, script, filepath.Join(folder, name))
	}
}

// Keep saves diagnostics of a pod with wrong devices.
func (v *VM) Keep(ctx context.Context, pod, file string) {
	v.progress.Say("  %s is not as it should be: see run/%s", pod, filepath.Base(file))
	v.write(ctx, "tandem explain "+pod+" 2>&1; tandem status 2>&1; "+podLogs+
		"; echo == kubelet; cat /var/log/kubelet.log", file)
}

// write saves the output of a script in the guest.
func (v *VM) write(ctx context.Context, script, file string) {
	output, err := v.Run(ctx, script)
	if err == nil {
		err = os.WriteFile(file, []byte(output), 0o644)
	}
	if err != nil {
		v.progress.Say("keep %s: %v", filepath.Base(file), err)
	}
}
