// SPDX-License-Identifier: Apache-2.0

// Command release writes the manifests of the Helm chart for use without Helm: kubectl apply -f release.yaml.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/tandem-k8s/tandem/test/others/chart/render"
)

// choice has the values of the command line.
type choice struct {
	chart, namespace string
	kubernetes       string // the version
	files, settings  []string
	texts            []string // settings that are always strings
	out              string
}

func main() {
	var c choice
	pflag.StringVar(&c.chart, "chart", "../../deployments/helm/tandem", "folder of the chart")
	pflag.StringVarP(&c.namespace, "namespace", "n", "kube-system", "namespace of the objects")
	pflag.StringVar(&c.kubernetes, "kube-version", render.Newest,
		"Kubernetes version of the manifests")
	pflag.StringArrayVarP(&c.files, "values", "f", nil, "file of Helm values, for example a preset; repeatable")
	pflag.StringArrayVar(&c.settings, "set", nil, "a Helm value, such as image.tag=v1; repeatable")
	pflag.StringArrayVar(&c.texts, "set-string", nil,
		"a Helm value of type string, such as image.tag=1.2; repeatable")
	pflag.StringVarP(&c.out, "out", "o", "/dev/stdout", "file of the manifests")
	pflag.Parse()
	if err := c.write(); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// write writes the rendered chart to the file. After an error the file is as it was.
func (c choice) write() error {
	manifests, err := c.render()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.out, []byte(manifests), 0o644); err != nil {
		return fmt.Errorf("write the manifests: %w", err)
	}
	return nil
}

// render returns the manifests of the chart with the values.
func (c choice) render() (string, error) {
	values, err := render.Values(c.files...)
	if err != nil {
		return "", err
	}
	for _, setting := range c.settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return "", fmt.Errorf("read --set %s: %w", setting, err)
		}
	}
	for _, setting := range c.texts {
		if err := strvals.ParseIntoString(setting, values); err != nil {
			return "", fmt.Errorf("read --set-string %s: %w", setting, err)
		}
	}
	chart, files, err := render.Files(c.chart, c.namespace, c.kubernetes, values)
	if err != nil {
		return "", fmt.Errorf("render the chart: %w", err)
	}
	return render.Manifests(chart, files), nil
}
