// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// measurement is what a daemon has used since its start.
type measurement struct {
	cpu       time.Duration
	allocated int // bytes
	known     int // questions answered with the requests of the asking pod
}

// measure reads the daemon's metrics; known are questions with requests from a source.
func (d *daemon) measure(t testing.TB, source string) (m measurement) {
	t.Helper()
	found := regexp.MustCompile(`msg="serving metrics and probes" address=(\S+)`).FindStringSubmatch(d.text())
	if found == nil {
		t.Fatalf("the daemon serves no metrics:\n%s", d.text())
	}
	answer, err := http.Get("http://" + found[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		values[name], _ = strconv.ParseFloat(value, 64) // 0 for a comment
	}
	return measurement{
		cpu:       time.Duration(values["process_cpu_seconds_total"] * float64(time.Second)),
		allocated: int(values["go_memstats_alloc_bytes_total"]),
		known:     int(values[fmt.Sprintf("tandem_questions_total{source=%q}", source)]),
	}
}

// peak returns the largest memory that the daemon has had, in MiB.
func (d *daemon) peak(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// settle waits until the daemon has ended the work of abandoned questions, or has used much time, and returns
// what it has used.
func (d *daemon) settle(t testing.TB, source string) measurement {
	t.Helper()
	const much = 5 * time.Second
	for last := d.measure(t, source); ; {
		<-time.After(300 * time.Millisecond)
		next := d.measure(t, source)
		if next.cpu == last.cpu || next.cpu > much {
			return next
		}
		last = next
	}
}

// question asks the daemon of the VFs for a pod that wants one, beside a tenant's pods.
func (n *node) question(t testing.TB) {
	t.Helper()
	pod := newPod(n.newName(), 0, 1)
	n.change(func() { n.others = []corev1.Pod{pod} })
	n.prefer(t, vfName, n.ids[vfName])
}
