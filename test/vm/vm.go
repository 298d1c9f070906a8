package main

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
)

// vm is the machine while it is on.
type vm struct {
	*service
	*progress
	ready chan struct{} // gets a token whenever the guest's agent starts to listen
}

// agent is where QEMU forwards to the guest's agent.
const agent = "http://10.0.2.15:8080"

// powerOn starts the machine and waits until its kubelet and its agent run. What it says goes to logs in a folder.
func (c *cache) powerOn(ctx context.Context, m machine, vfsPerPF int, folder string) (*vm, error) {
	console, log, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := c.qemu(m, vfsPerPF)
	cmd.Stdout = log
	s, err := startService(cmd, filepath.Join(folder, "qemu.log"))
	log.Close()
	if err != nil {
		return nil, err
	}
	v := &vm{service: s, progress: c.progress, ready: make(chan struct{}, 1)}
	go v.read(console, filepath.Join(folder, "console.log"))
	return v, v.waitReady(ctx)
}

// read keeps what the console says and shows what the guest's first process says.
func (v *vm) read(console io.ReadCloser, file string) {
	defer console.Close()
	log, err := os.Create(file)
	if err != nil {
		v.say("%v", err)
		return
	}
	defer log.Close()
	lines := bufio.NewScanner(console)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		_, message, ok := strings.Cut(lines.Text(), "guest: ")
		if ok {
			v.say("  guest: %s", strings.TrimSpace(message))
		}
		if ok && strings.TrimSpace(message) == "ready" {
			v.ready <- struct{}{}
		}
	}
}

func (v *vm) waitReady(ctx context.Context) error {
	select {
	case <-v.ready:
		return nil
	case <-v.done:
		return errors.Join(errors.New("see console.log in run"), v.ended())
	case <-ctx.Done():
		return errors.New("the guest is not ready: see console.log in run")
	}
}

// run runs a shell's script in the guest and returns what it printed.
func (v *vm) run(ctx context.Context, script string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, agent+"/run", strings.NewReader(script))
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
		return string(output), fmt.Errorf("in the guest: %s: exit code %s: %s", script, code, tail(string(output), 1000))
	}
	return string(output), nil
}

// reboot restarts the machine as its kernel does, and waits until it is ready again. The disk is as it was. The machine is
// mostly gone before it answers, and then nothing ends the connection.
func (v *vm) reboot(ctx context.Context) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(asking, http.MethodPost, agent+"/reboot", http.NoBody)
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
const podLogs = "for f in /var/log/pods/*/*/*.log; do echo \"== $f\"; cat $f; done"

// collect keeps the guest's logs of the kubelet and containerd, and of all containers.
func (v *vm) collect(folder string) {
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

// keep keeps what tells why a pod did not get what it should have.
func (v *vm) keep(ctx context.Context, pod, file string) {
	v.say("  %s is not as it should be: see run/%s", pod, filepath.Base(file))
	v.write(ctx, "tandem explain "+pod+" 2>&1; tandem status 2>&1; "+podLogs+"; echo == kubelet; cat /var/log/kubelet.log", file)
}

// write keeps what a script in the guest prints.
func (v *vm) write(ctx context.Context, script, file string) {
	output, err := v.run(ctx, script)
	if err == nil {
		err = os.WriteFile(file, []byte(output), 0o644)
	}
	if err != nil {
		v.say("keep %s: %v", filepath.Base(file), err)
	}
}
