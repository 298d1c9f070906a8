// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/vm/host"
)

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
