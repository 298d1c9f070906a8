// SPDX-License-Identifier: Apache-2.0

// Package render renders the chart with Helm's own code, as "helm template" does.
package render

import (
	"fmt"
	"os"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// Release is the name of the rendered release.
const Release = "tandem"

// tests is the folder of a chart's objects for "helm test".
const tests = "templates/tests/"

// Newest is the newest supported version of Kubernetes.
const Newest = "v1.37.0"

// mutatingPolicy is a kind of the API server from version mutating on.
const mutatingPolicy = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

var mutating = version.MajorMinor(1, 36)

// Files renders the chart in a folder, for a namespace of a cluster of this version with these values, and
// returns the templates' output by "<chart>/templates/<file>". Values that violate the chart's schema are an
// error; the chart is returned too.
func Files(
	dir, namespace, kubeVersion string, values map[string]any,
) (*chart.Chart, map[string]string, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("load the chart %s: %w", dir, err)
	}
	options := common.ReleaseOptions{Name: Release, Namespace: namespace, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	kubernetes, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return c, nil, fmt.Errorf("read the version %q of Kubernetes: %w", kubeVersion, err)
	}
	capabilities.KubeVersion = *kubernetes
	// Unlike an API server's list, Helm's own list has no kinds.
	if v, err := version.ParseGeneric(kubernetes.Version); err == nil && v.AtLeast(mutating) {
		capabilities.APIVersions = append(capabilities.APIVersions, mutatingPolicy)
	}
	all, err := util.ToRenderValues(c, values, options, capabilities)
	if err != nil {
		return c, nil, err
	}
	files, err := engine.Render(c, all)
	return c, files, err
}

// Manifests joins the output of Files in the order of the templates, without empty output, notes and objects
// for "helm test".
func Manifests(c *chart.Chart, files map[string]string) string {
	var out strings.Builder
	for _, template := range c.Templates {
		text := strings.TrimSpace(files[c.Name()+"/"+template.Name])
		if text != "" && strings.HasSuffix(template.Name, ".yaml") && !strings.HasPrefix(template.Name, tests) {
			out.WriteString("---\n" + text + "\n")
		}
	}
	return out.String()
}

// Values reads files like Helm's -f: later files take precedence.
func Values(files ...string) (map[string]any, error) {
	all := map[string]any{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		var values map[string]any
		if err := yaml.Unmarshal(content, &values); err != nil {
			return nil, fmt.Errorf("read values %s: %w", file, err)
		}
		all = loader.MergeMaps(all, values)
	}
	return all, nil
}
