// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// TestNameOverride: objects have other names then, and find each other by them.
func TestNameOverride(t *testing.T) {
	for _, values := range []string{"intent: [kubelet]", "{mode: dra}"} {
		names := func(values string) (all []string) {
			for _, o := range install(t, values) {
				all = append(all, o.name())
				if spec, ok := o.at("spec", "template", "spec", "serviceAccountName").(string); ok {
					all = append(all, "ServiceAccount/"+spec)
				}
				if subject, ok := o.at("subjects").([]any); ok {
					all = append(all, "ServiceAccount/"+subject[0].(map[string]any)["name"].(string))
				}
				if role, ok := o.at("roleRef", "name").(string); ok {
					all = append(all, "ClusterRole/"+role)
				}
			}
			return all
		}
		before := names(values)
		after := names(strings.Replace("{nameOverride: pair, "+strings.Trim(values, "{}")+"}", "{, ", "{", 1))
		for i := range before {
			if strings.HasPrefix(before[i], "DeviceClass/") || strings.Contains(before[i], "-dra-counts") {
				continue // of the cluster: one of each
			}
			before[i] = strings.Replace(before[i], "tandem", "pair", 1)
		}
		if diff := cmp.Diff(before, after); diff != "" || len(after) < 6 {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// TestSchedulerElsewhere: in another namespace and under another name everything is found by that name, and
// the API server's role for who may read metrics stays where it is.
func TestSchedulerElsewhere(t *testing.T) {
	values := given(t, "{nameOverride: pair, publish: [nrt, tandem], scheduler: {enabled: true, name: mine}}")
	c, files, err := helm.Files(chartDir, "gpu", helm.Newest, values)
	ready(t, err)
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
