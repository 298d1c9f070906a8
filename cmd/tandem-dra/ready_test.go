// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// readyz returns the answer of /readyz.
func (p *process) readyz(t *testing.T) (code int, text string) {
	t.Helper()
	_, address, _ := strings.Cut(p.text(), `msg="serving metrics and probes" address=`)
	address, _, _ = strings.Cut(address, "\n")
	answer, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

// TestOtherVendor: on a node whose GPUs are another vendor's than --vendor, the registered driver publishes
// VFs and is not ready, and the answer and the log name the value to set.
func TestOtherVendor(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived")
	p := start(t, n.args("--kubeconfig="+n.kubeconfig(t, "http://127.0.0.1:1"), "--vendor=nvidia",
		"--driver-root-ctr-path="+t.TempDir(), "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=127.0.0.1:0")...)
	if _, err := registerapi.NewRegistrationClient(dial(t, n.awaitSocket(t, p))).NotifyRegistrationStatus(
		t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatal(err)
	}
	const advice = "no GPU is published: gpu.vendor (--vendor) is nvidia, and the GPUs of this node are " +
		"AMD's: set gpu.vendor=amd or auto"
	if code, text := p.readyz(t); code != http.StatusServiceUnavailable || strings.TrimSpace(text) != advice {
		t.Errorf("/readyz: %d, %s", code, text)
	}
	if !strings.Contains(p.text(), advice) {
		t.Errorf("the log lacks the reason:\n%s", p.text())
	}
}
