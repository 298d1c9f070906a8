// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// monitoringDir has what is counted, alertsDir what is done with it.
const (
	monitoringDir = "../../../deployments/monitoring/"
	alertsDir     = chartDir + "/monitoring/"
)

// operators strictly reads the kinds of the Prometheus operator; of others it says false.
func operators(o object) (known bool, err error) {
	content, err := json.Marshal(o)
	if err != nil {
		return true, err
	}
	switch o.at("kind") {
	case monitoring.PodMonitorsKind:
		return true, yaml.UnmarshalStrict(content, &monitoring.PodMonitor{})
	case monitoring.PrometheusRuleKind:
		return true, yaml.UnmarshalStrict(content, &monitoring.PrometheusRule{})
	default:
		return false, nil
	}
}

// metrics are those of the table that a test of the daemons writes, with their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(monitoringDir + "METRICS.md")
	ready(t, err)
	all := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(tandem_\\w+)` \\| (\\w+) \\| (.*?) \\|").
		FindAllStringSubmatch(string(content), -1) {
		names := regexp.MustCompile(`\w+`).FindAllString(row[3], -1)
		if row[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[row[1]+suffix] = append(slices.Clone(names), "le")
			}
		} else {
			all[row[1]] = names
		}
	}
	if len(all) < 12 {
		t.Fatalf("the table has %d metrics", len(all))
	}
	return all
}

// scraped are the labels that Prometheus adds.
var scraped = []string{"node", "pod", "namespace", "instance", "job"}

// checkQuery makes sure that a query parses, and that its metrics and their labels are there; used is told of
// each metric.
func checkQuery(t *testing.T, where, query string, known map[string][]string, used map[string]bool) {
	t.Helper()
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return
	}
	var have []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		names, exists := known[selector.Name]
		if !exists {
			t.Errorf("%s: there is no metric %q", where, selector.Name)
		}
		have = append(have, names...)
		used[strings.TrimSuffix(selector.Name, "_bucket")] = true
		for _, m := range selector.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(names, m.Name) &&
				!slices.Contains(scraped, m.Name) {
				t.Errorf("%s: %s has no label %s", where, selector.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if aggregate, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range aggregate.Grouping {
				if !slices.Contains(have, label) && !slices.Contains(scraped, label) {
					t.Errorf("%s: nothing has the label %s of %s", where, label, aggregate)
				}
			}
		}
		return nil
	})
}

func TestAlerts(t *testing.T) {
	content, err := os.ReadFile(alertsDir + "alerts.yaml")
	ready(t, err)
	var rules monitoring.PrometheusRule
	ready(t, yaml.UnmarshalStrict(content, &rules))
	known, seen := metrics(t), map[string]bool{}
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			if seen[rule.Alert] || !regexp.MustCompile(`^Tandem[A-Z]\w+$`).MatchString(rule.Alert) {
				t.Errorf("alert %q", rule.Alert)
			}
			seen[rule.Alert] = true
			checkQuery(t, rule.Alert, rule.Expr.StrVal, known, map[string]bool{})
			if !slices.Contains([]string{"info", "warning", "critical"}, rule.Labels["severity"]) {
				t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
			}
			checkPages(t, rule.Alert, rule.Annotations["runbook_url"])
			if want := "docs/troubleshoot.md#" + strings.ToLower(rule.Alert); !strings.HasSuffix(
				rule.Annotations["runbook_url"], want) {
				t.Errorf("%s: runbook_url %q, want one to %s", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			for _, key := range []string{"summary", "description", "runbook"} {
				text := rule.Annotations[key]
				if text == "" || strings.Contains(text, "\n") || len(text) > 300 {
					t.Errorf("%s: %s is no line: %q", rule.Alert, key, text)
				}
				for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
					if by := regexp.MustCompile(`by \(([^)]*)\)`).
						FindStringSubmatch(rule.Expr.StrVal); !strings.Contains(by[1], label[1]) {
						t.Errorf("%s: %s names the label %s, which is not left", rule.Alert, key, label[1])
					}
				}
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d alerts", len(seen))
	}
}

// TestAlertsAreRules: Prometheus itself reads the spec as a file of rules, templates in the annotations
// included.
func TestAlertsAreRules(t *testing.T) {
	objects := manifest(t, "deployments/helm/tandem/monitoring/alerts.yaml")
	spec, err := yaml.Marshal(objects[0]["spec"])
	ready(t, err)
	read := func(rules string) (*rulefmt.RuleGroups, []error) {
		return rulefmt.Parse([]byte(rules), false, model.UTF8Validation, parser.NewParser(parser.Options{}),
			slog.New(slog.DiscardHandler))
	}
	groups, problems := read(string(spec))
	if len(problems) > 0 || len(groups.Groups[0].Rules) < 10 {
		t.Errorf("%v", problems)
	}
	if _, problems := read(strings.Replace(string(spec), "{{ $labels.node }}", "{{ $labels.node }",
		1)); len(problems) == 0 {
		t.Error("a broken template passes")
	}
}

// TestDashboard: every query parses and asks for what there is, and every metric can be seen.
func TestDashboard(t *testing.T) {
	content, err := os.ReadFile(alertsDir + "dashboard.json")
	ready(t, err)
	var dashboard struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	ready(t, json.Unmarshal(content, &dashboard))
	known, used, ids := metrics(t), map[string]bool{}, map[int]bool{}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h")
	for i, panel := range dashboard.Panels {
		if panel.Title == "" || len(panel.Targets) == 0 || ids[panel.ID] {
			t.Errorf("panel %d %q has no title, no query or another's number", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			checkQuery(t, panel.Title, variables.Replace(target.Expr), known, used)
		}
		p := panel.GridPos
		for _, other := range dashboard.Panels[:i] {
			if o := other.GridPos; p.X+p.W > 24 || p.X < o.X+o.W && o.X < p.X+p.W && p.Y < o.Y+o.H && o.Y < p.Y+p.H {
				t.Errorf("panels %q and %q lie on each other", panel.Title, other.Title)
			}
		}
	}
	for name := range known {
		name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !used[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// TestMonitoringValues: the chart's alerts and dashboard are those that can be applied without it.
func TestMonitoringValues(t *testing.T) {
	rendered, err := render(t,
		"metrics: {prometheusRule: {enabled: true, labels: {release: mine}}, dashboard: {enabled: true}}")
	ready(t, err)
	found := map[string]object{}
	for _, o := range parse(t, rendered) {
		found[o.name()] = o
	}
	rule := found["PrometheusRule/tandem"]
	if _, err := operators(rule); err != nil || rule.at("metadata", "labels", "release") != "mine" {
		t.Errorf("the rule is %v: %v", rule, err)
	}
	want := manifest(t, "deployments/helm/tandem/monitoring/alerts.yaml")[0]
	if diff := cmp.Diff(want.at("spec"), rule.at("spec")); diff != "" {
		t.Errorf("the alerts are others (-want +got):\n%s", diff)
	}
	dashboard, err := os.ReadFile(alertsDir + "dashboard.json")
	ready(t, err)
	configMap := found["ConfigMap/tandem-dashboard"]
	if got, _ := configMap.at("data", "dashboard.json").(string); strings.TrimSpace(got) !=
		strings.TrimSpace(string(dashboard)) || configMap.at("metadata", "labels", "grafana_dashboard") != "1" {
		t.Errorf("the dashboard is another one:\n%s", got)
	}
}
