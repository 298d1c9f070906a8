// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/version"
	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

const beside = "{publish: [tandem], scheduler: {enabled: true}}"

// TestSchedulerOfKustomize: what the chart adds with the scheduler is what kustomize builds of
// deployments/scheduler.
func TestSchedulerOfKustomize(t *testing.T) {
	rendered, err := render(t, beside)
	if err != nil {
		t.Fatal(err)
	}
	// Names outside the release's namespace are the release's in the chart.
	plain := strings.ReplaceAll(rendered, namespace+"-tandem-scheduler", "tandem-scheduler")
	chart := slices.DeleteFunc(parse(t, plain), func(o object) bool {
		return !strings.Contains(o.name(), "tandem-scheduler")
	})
	same(t, parse(t, kustomize(t, "../../../deployments/scheduler")), chart)
}

// TestSchedulerImage: it is the one that make image-scheduler makes beside the image of the daemons.
func TestSchedulerImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for values, want := range map[string]string{
		"":                                  "ghcr.io/tandem-k8s/tandem-scheduler:" + version.Tag(version.Of(nil)),
		"image: {repository: a/b, tag: v1}": "a/b-scheduler:v1",
		"image: {repository: a/b, tag: v1, digest: " + digest + "}":              "a/b-scheduler:v1",
		"scheduler: {image: {repository: a/b, tag: v2}}":                         "a/b:v2",
		"scheduler: {image: {repository: a/b, tag: v2, digest: " + digest + "}}": "a/b:v2@" + digest,
	} {
		all := given(t, values)
		scheduler, _ := all["scheduler"].(map[string]any)
		if scheduler == nil {
			scheduler = map[string]any{}
		}
		scheduler["enabled"], all["scheduler"], all["publish"] = true, scheduler, []any{"tandem"}
		rendered, err := render(t, text(all))
		if err != nil || strings.Count(rendered, "image: "+want+"\n") != 1 {
			t.Errorf("%q: %v, want the image %s once:\n%s", values, err, want, rendered)
		}
	}
}

// TestSchedulerElsewhere: in another namespace and under another name everything is found by that name, and
// the API server's role for who may read metrics stays where it is.
func TestSchedulerElsewhere(t *testing.T) {
	values := given(t, "{nameOverride: pair, publish: [nrt, tandem], scheduler: {enabled: true, name: mine}}")
	c, files, err := helm.Files(chartDir, "gpu", helm.Newest, values)
	if err != nil {
		t.Fatal(err)
	}
	rendered := helm.Manifests(c, files)
	for _, want := range []string{
		"serviceAccountName: pair-scheduler\n", "configMap: {name: pair-scheduler}", "resourceNamespace: gpu\n",
		"resourceName: pair-scheduler #", "resourceNames: [pair-scheduler]", "schedulerName: \"mine\"\n",
		"name: gpu-pair-scheduler-as-kube-scheduler\n",
		"{kind: ServiceAccount, name: pair-scheduler, namespace: \"gpu\"}",
		"name: gpu-pair-scheduler-authentication-reader\n  namespace: kube-system\n",
	} {
		if !strings.Contains(rendered, want) {
			t.Errorf("no %q in\n%s", want, rendered)
		}
	}
}

// TestSchedulerBudget: one replica at a time may be evicted, unless values say otherwise, and the budget
// selects the pods of its release.
func TestSchedulerBudget(t *testing.T) {
	for values, want := range map[string]string{
		"": "1", "podDisruptionBudget: {maxUnavailable: 50%}": "50%",
		"podDisruptionBudget: {enabled: false}": "none",
	} {
		all, scheduler := given(t, "publish: [tandem]"), given(t, values)
		scheduler["enabled"], all["scheduler"] = true, scheduler
		rendered, err := render(t, text(all))
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		for _, o := range parse(t, rendered) {
			if o.at("kind") != "PodDisruptionBudget" {
				continue
			}
			got = fmt.Sprint(o.at("spec", "maxUnavailable"))
			if o.at("spec", "selector", "matchLabels", "app.kubernetes.io/instance") != "tandem" {
				t.Errorf("%s: the budget is not for one release: %s", values, text(o))
			}
		}
		if got != want {
			t.Errorf("%s: maxUnavailable is %s, want %s", values, got, want)
		}
	}
	for _, wrong := range []string{"0", "0%", "all"} {
		values := "{publish: [tandem], scheduler: {enabled: true, podDisruptionBudget: {maxUnavailable: " +
			wrong + "}}}"
		if _, err := render(t, values); err == nil {
			t.Errorf("maxUnavailable: %s is accepted", wrong)
		}
	}
}
