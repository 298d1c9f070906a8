// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/golden"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ deviceplugin.RegistrationObserver = (*monitor)(nil)

// fake is a serving Node.
type fake struct {
	hangs  bool
	source intent.Source // source that enforces annotations
	joins  bool          // another node serves
}

func (f fake) Enforcement() (intent.Enforcement, bool) {
	return intent.Enforcement{Source: f.source, Why: "nobody answers"}, !f.joins
}

func (fake) Role() coordination.Role { return coordination.Serves }

func (fake) Resources() []*api.Resource {
	device := func(healthy, allocated, stranded bool) *api.DeviceStatus {
		one := &api.Device{Healthy: healthy}
		if !healthy {
			one.Reason = "aer_fatal increased"
		}
		return &api.DeviceStatus{Device: one, Allocated: allocated, Stranded: stranded}
	}
	return []*api.Resource{{Name: "amd.com/gpu", Connected: true, Devices: []*api.DeviceStatus{
		device(true, false, true), device(true, false, false), device(true, true, false),
		device(false, true, false),
	}}, {
		Name: "tandem.dev/rdma_vf", Kind: "vf", Connected: true,
		Devices: []*api.DeviceStatus{{Device: &api.Device{Healthy: true, Numa: new(uint32)}}},
	}}
}

func (f fake) Alive(ctx context.Context) error {
	if !f.hangs {
		return nil
	}
	<-ctx.Done()
	return errors.New("the coordinator hangs")
}

// used returns a monitor after every kind of event.
func used() *monitor {
	m := newMonitor("v1.2.3")
	m.Node(fake{source: intent.PodsAPI})
	m.Offered("amd.com/gpu")
	m.Registered("amd.com/gpu")
	m.Preferred("amd.com/gpu", 1500*time.Microsecond)
	pair := placement.Pair{Distance: topology.Distance{Level: topology.PHB}}
	for _, event := range []any{
		admission.Answered(intent.PodsAPI), admission.Planned(2), admission.Kept, admission.PreferCall,
		admission.Verdict{
			Resource: "amd.com/gpu", Outcome: admission.Degraded, Pairs: []placement.Pair{pair, {}},
		},
	} {
		m.Observe(event)
	}
	return m
}

func TestValues(t *testing.T) {
	const want = `tandem_alignment_enforced 1
tandem_allocations_total{outcome="aligned",resource="amd.com/gpu"} 0
tandem_allocations_total{outcome="aligned",resource="tandem.dev/rdma_vf"} 0
tandem_allocations_total{outcome="degraded",resource="amd.com/gpu"} 1
tandem_allocations_total{outcome="degraded",resource="tandem.dev/rdma_vf"} 0
tandem_allocations_total{outcome="granted",resource="amd.com/gpu"} 0
tandem_allocations_total{outcome="granted",resource="tandem.dev/rdma_vf"} 0
tandem_allocations_total{outcome="refused_alignment",resource="amd.com/gpu"} 0
tandem_allocations_total{outcome="refused_alignment",resource="tandem.dev/rdma_vf"} 0
tandem_allocations_total{outcome="refused_double",resource="amd.com/gpu"} 0
tandem_allocations_total{outcome="refused_double",resource="tandem.dev/rdma_vf"} 0
tandem_answers_alone_total{call="allocate"} 0
tandem_answers_alone_total{call="prefer"} 1
tandem_containers_degraded 0
tandem_coordination_role{role="alone"} 0
tandem_coordination_role{role="client"} 0
tandem_coordination_role{role="foreign"} 0
tandem_coordination_role{role="server"} 1
tandem_devices{resource="amd.com/gpu",state="allocated"} 1
tandem_devices{resource="amd.com/gpu",state="free"} 2
tandem_devices{resource="amd.com/gpu",state="unhealthy"} 1
tandem_devices{resource="tandem.dev/rdma_vf",state="allocated"} 0
tandem_devices{resource="tandem.dev/rdma_vf",state="free"} 1
tandem_devices{resource="tandem.dev/rdma_vf",state="unhealthy"} 0
tandem_devices_stranded{resource="amd.com/gpu"} 1
tandem_devices_stranded{resource="tandem.dev/rdma_vf"} 0
tandem_pairs_total{distance="C2C"} 0
tandem_pairs_total{distance="NODE"} 0
tandem_pairs_total{distance="PHB"} 1
tandem_pairs_total{distance="PIX"} 1
tandem_pairs_total{distance="PXB"} 0
tandem_pairs_total{distance="SYS"} 0
tandem_pairs_total{distance="UNK"} 0
tandem_plans_total 2
tandem_vf_numa_hints{resource="tandem.dev/rdma_vf"} 1
`
	m := used()
	show(m) // the outcomes of a resource are there from the second time on
	var got []string
	for line := range strings.Lines(show(m)) {
		name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
		if strings.Contains(want, name+"{") || strings.Contains(want, name+" ") {
			got = append(got, line)
		}
	}
	if diff := cmp.Diff(want, strings.Join(got, "")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// show returns the metrics for Prometheus.
func show(m *monitor) string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(answer,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestNamesFollowTheConventions(t *testing.T) {
	problems, err := testutil.GatherAndLint(used().registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

const table = "../../../deployments/monitoring/METRICS.md"

// alertsFile has the alerts of the chart.
const alertsFile = "../../../deployments/helm/tandem/monitoring/alerts.yaml"

// TestTable compares the documented tables with the metrics, and with the alerts.
func TestTable(t *testing.T) {
	families, err := used().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), namespace+"_") {
			fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()),
				labels(f), strings.TrimSpace(strings.ReplaceAll(f.GetHelp(), serverOnly, "*")))
		}
	}
	checkTable(t, "| Metric | Type | Labels | Description |\n|---|---|---|---|\n", rows.String())
	checkTable(t, "| Alert | After | Meaning |\n|---|---|---|\n", alerts(t))
}

// label is a label or the value in the text of an alert.
var label = regexp.MustCompile(`{{ \$(?:labels\.)?(\w+)[^}]*}}`)

// alerts returns the rows of the alerts.
func alerts(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, For  string
					Annotations struct{ Summary string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(content, &rule); err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, g := range rule.Spec.Groups {
		for _, r := range g.Rules {
			row := fmt.Sprintf("| [%s](../../docs/troubleshoot.md#%s) | %s | %s |\n", r.Alert,
				strings.ToLower(r.Alert), r.For, r.Annotations.Summary)
			rows.WriteString(label.ReplaceAllString(row, "`$1`"))
		}
	}
	return rows.String()
}

// checkTable compares the rows of the table with a head.
func checkTable(t *testing.T, head, rows string) {
	t.Helper()
	content, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(content), head)
	if !found {
		t.Fatalf("%s has no table", table)
	}
	_, rest, _ := strings.Cut("\n"+after, "\n\n")
	golden.Check(t, table, before+head+rows+"\n"+rest)
}

func labels(f *dto.MetricFamily) string {
	var names []string
	for _, label := range f.GetMetric()[0].GetLabel() {
		names = append(names, "`"+label.GetName()+"`")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func TestProbes(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		happy func(*monitor)
		code  int
		text  string
	}{
		"not begun": {"/readyz", func(*monitor) {}, 503,
			"starting: what there is to offer is not known yet"},
		"a driver is waited for": {"/readyz", func(m *monitor) { m.Begin(); m.Wait(errors.New("no driver")) }, 503,
			"nothing is offered: no driver"},
		"a part is offered": {"/readyz", func(m *monitor) {
			m.Wait(errors.New("no driver"))
			m.Lack(errors.New("no GPU is published"))
		}, 503, "no GPU is published"},
		"all is offered": {"/readyz", func(m *monitor) { m.Lack(errors.New("no GPU")); m.Begin() }, 200, "ok"},
		"it has come":    {"/readyz", func(m *monitor) { m.Wait(errors.New("no driver")); m.Begin() }, 200, "ok"},
		"in detail": {"/readyz?verbose", func(m *monitor) {
			m.Begin("a/b")
			m.Registered("a/b")
			m.Resource("a/c", nil)
			m.Node(fake{source: intent.PodsAPI})
		}, 200, "a/b is registered with the kubelet\na/c is without devices\n" +
			"annotation tandem.dev/alignment is enforced on this node (source pods-api)\nok"},
		"with a remark": {"/readyz?verbose", func(m *monitor) {
			m.Begin()
			m.Remark(func() string { return "all devices are withheld: because" })
		}, 200, "all devices are withheld: because\nok"},
		"annotations are not enforced": {"/readyz?verbose", func(m *monitor) { m.Begin(); m.Node(fake{}) }, 200,
			"annotation tandem.dev/alignment is not enforced on this node: nobody answers\nok"},
		"another one knows": {"/readyz?verbose",
			func(m *monitor) { m.Begin("a/b"); m.Node(fake{joins: true}) }, 503,
			"a/b is not registered with the kubelet\nwhether annotation tandem.dev/alignment is enforced knows the " +
				"plugin that serves the coordination\na/b is not registered with the kubelet"},
		"nothing is offered": {"/readyz", func(m *monitor) { m.Begin() }, 200, "ok"},
		"no device":          {"/readyz", func(m *monitor) { m.Begin(); m.Resource("a/b", nil) }, 200, "ok"},
		"not offered yet": {"/readyz", func(m *monitor) { m.Begin("a/b") }, 503,
			"a/b is not registered with the kubelet"},
		"not registered yet": {"/readyz", func(m *monitor) { m.Begin(); m.Offered("a/b") }, 503,
			"a/b is not registered with the kubelet"},
		"registered": {"/readyz", func(m *monitor) { m.Begin(); m.Offered("a/b"); m.Registered("a/b") }, 200, "ok"},
		"one of two": {"/readyz",
			func(m *monitor) { m.Begin(); m.Offered("a/b"); m.Registered("a/b"); m.Offered("a/c") }, 503,
			"a/c is not registered with the kubelet"},
		"the kubelet is away": {"/readyz", func(m *monitor) {
			m.Begin()
			m.Offered("a/b")
			m.Registered("a/b")
			m.Unregistered("a/b", errors.New("it went"))
		}, 503, "a/b is not registered with the kubelet: it went"},
		"it came back": {"/readyz", func(m *monitor) {
			m.Begin()
			m.Offered("a/b")
			m.Unregistered("a/b", errors.New("it went"))
			m.Registered("a/b")
		}, 200, "ok"},
		"its server is gone": {"/readyz",
			func(m *monitor) { m.Begin(); done := m.Resource("a/b", nil); m.Offered("a/b"); done() }, 200, "ok"},
		"starting": {"/healthz", func(m *monitor) { m.Offered("a/b") }, 200, "ok"},
		"alive":    {"/healthz", func(m *monitor) { m.Node(fake{}) }, 200, "ok"},
		"hangs":    {"/healthz", func(m *monitor) { m.Node(fake{hangs: true}) }, 503, "the coordinator hangs"},
		"a question hangs": {"/healthz", func(m *monitor) {
			m.Node(fake{})
			m.Resource("a/b", func(context.Context) error { return errors.New("a preferred allocation of a/b hangs") })
		}, 503, "a preferred allocation of a/b hangs"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMonitor("v1.2.3")
			c.happy(m)
			check, details := m.checkAlive, noDetails
			if strings.HasPrefix(c.path, "/readyz") {
				check, details = m.checkReady, m.probeDetails
			}
			answer, began := httptest.NewRecorder(), time.Now()
			newProbe(check, details)(answer, httptest.NewRequest(http.MethodGet, c.path, nil))
			if answer.Code != c.code || strings.TrimSpace(answer.Body.String()) != c.text {
				t.Errorf("%s: %d %q, want %d %q", name, answer.Code, answer.Body, c.code, c.text)
			}
			if took := time.Since(began); took > probeTimeout {
				t.Errorf("%s: took %s", name, took)
			}
		})
	}
}

// TestServe: each address has its pages, and an address in use is retried.
func TestServe(t *testing.T) {
	busy := httptest.NewServer(http.NotFoundHandler())
	defer busy.Close()
	lines := make(logged, 8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		used().Serve(ctx, "127.0.0.1:0", address(busy.Listener.Addr().String()),
			slog.New(slog.NewTextHandler(lines, nil)))
	}()
	all := <-lines + <-lines
	if !strings.Contains(all, "address already in use") || !strings.Contains(all, "probes not available") {
		t.Errorf("log %q", all)
	}
	_, address, _ := strings.Cut(all, `msg="serving metrics and probes" address=`)
	address, _, _ = strings.Cut(address, "\n")
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 404, "/": 404} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != want ||
			want == 200 && !strings.Contains(string(body), "tandem_build_info{version=\"v1.2.3\"} 1") {
			t.Errorf("%s: %d, want %d: %v\n%s", path, answer.StatusCode, want, err, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	<-done
}

// logged receives the lines of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestNothingIsServedByDefault(t *testing.T) {
	// returns, without an address
	newMonitor("v1.2.3").Serve(t.Context(), "", "", slog.New(slog.DiscardHandler))
}
