// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// until asks again and again until what is wanted holds: the other side of a socket has no event for us.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(kubelettest.Limit); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// scrape is what the daemons count, together.
func (n *node) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	for _, daemon := range n.daemons {
		_, text := daemon.Get(t, "/metrics")
		for line := range strings.Lines(text) {
			series, value, found := strings.Cut(strings.TrimSpace(line), " ")
			if !found || !strings.HasPrefix(series, "tandem_") {
				continue
			}
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum[series] += number
		}
	}
	return sum
}

// What the daemons count is what the kubelet asked and was answered.
func TestDaemonsAreWatched(t *testing.T) {
	t.Attr("parity", "all/metrics-endpoint")
	t.Attr("parity", "all/rpc-order")
	t.Attr("parity", "sriov/preferred")
	n := newPair(t, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	until(t, "both plugins are connected", func() bool {
		now := n.scrape(t)
		return now[`tandem_resource_connected{resource="`+gpus+`"}`] == 1 &&
			now[`tandem_resource_connected{resource="`+vfs+`"}`] == 1
	})
	const pods = 4
	for round := range pods {
		n.admit(t, round)
	}
	n.scrape(t) // the outcomes of a resource are there from the second time on
	got := n.scrape(t)
	if late := got[`tandem_answers_alone_total{call="prefer"}`] +
		got[`tandem_answers_alone_total{call="allocate"}`] +
		got[`tandem_questions_total{source="inference"}`]; late > 0 {
		t.Skipf("this computer is too busy: %v answers did not come in time", late)
	}
	for series, want := range map[string]float64{
		`tandem_pairs_total{distance="PIX"}`:                                        2 * pods,
		`tandem_pairs_total{distance="NODE"}`:                                       0,
		`tandem_allocations_total{outcome="aligned",resource="` + gpus + `"}`:       pods / 2,
		`tandem_allocations_total{outcome="aligned",resource="` + vfs + `"}`:        pods / 2,
		`tandem_allocations_total{outcome="granted",resource="` + gpus + `"}`:       pods / 2,
		`tandem_allocations_total{outcome="refused_double",resource="` + vfs + `"}`: 0,
		`tandem_plans_total`:                                                                    pods,
		`tandem_plans_ended_total{outcome="kept"}`:                                              pods,
		`tandem_questions_total{source="podresources"}`:                                         2 * pods,
		`tandem_answers_alone_total{call="prefer"}`:                                             0,
		`tandem_preferred_allocation_duration_seconds_count{resource="` + gpus + `"}`:           pods,
		`tandem_preferred_allocation_duration_seconds_bucket{resource="` + vfs + `",le="+Inf"}`: pods,
		`tandem_coordination_role{role="server"}`:                                               1,
		`tandem_coordination_role{role="client"}`:                                               1,
		`tandem_resource_connected{resource="` + gpus + `"}`:                                    1,
		`tandem_resource_connected{resource="` + vfs + `"}`:                                     1,
		`tandem_devices{resource="` + gpus + `",state="free"}`:                                  6,
		`tandem_devices{resource="` + gpus + `",state="allocated"}`:                             2,
		`tandem_devices{resource="` + vfs + `",state="free"}`:                                   30,
		`tandem_devices{resource="` + vfs + `",state="unhealthy"}`:                              0,
		`tandem_devices_stranded{resource="` + gpus + `"}`:                                      0,
		// on the switches of the two GPUs that are given
		`tandem_devices_stranded{resource="` + vfs + `"}`:             6,
		`tandem_kubelet_registered{resource="` + vfs + `"}`:           1,
		`tandem_kubelet_registrations_total{resource="` + gpus + `"}`: 1,
		`tandem_events_total{outcome="dropped"}`:                      0,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", series, value, ok, want)
		}
	}
	n.probe(t, "/healthz", http.StatusOK)
	n.probe(t, "/readyz", http.StatusOK)
	n.kubelet.Stop()
	for _, plugin := range n.plugins {
		plugin.Close()
	}
	n.probe(t, "/readyz", http.StatusServiceUnavailable)
	n.probe(t, "/healthz", http.StatusOK) // a kubelet that is away is no reason to start anew
	n.kubelet = kubelettest.Start(t, n.dir)
	n.probe(t, "/readyz", http.StatusOK)
	if got := n.scrape(t)[fmt.Sprintf("tandem_kubelet_registrations_total{resource=%q}", vfs)]; got < 2 {
		t.Errorf("%v registrations after the kubelet's restart", got)
	}
}

// probe waits until all daemons answer a path with a code.
func (n *node) probe(t *testing.T, path string, code int) {
	t.Helper()
	for _, daemon := range n.daemons {
		until(t, fmt.Sprintf("%s answers %d", path, code), func() bool {
			got, _ := daemon.Get(t, path)
			return got == code
		})
	}
}

// A daemon that starts is not ready before the kubelet knows its devices, from its first answer on: a rollout
// waits for that.
func TestReadyOnceTheKubeletKnows(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4)
	n.flags = append(n.flags, "--health-probe-bind-address=127.0.0.1:0")
	n.kubelet.Stop()
	n.start(t, "tandem-gpu")
	n.start(t, "tandem-rdma")
	for _, daemon := range n.daemons {
		until(t, "the devices are known", func() bool {
			code, text := daemon.Get(t, "/readyz")
			if code != http.StatusServiceUnavailable {
				t.Fatalf("%s: ready with %d %q while there is no kubelet", daemon.Path, code, text)
			}
			return strings.Contains(text, "is not registered with the kubelet")
		})
	}
	n.kubelet = kubelettest.Start(t, n.dir)
	n.probe(t, "/readyz", http.StatusOK)
}
