// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem-scheduler/plugin"
)

const deployments = "../../deployments/scheduler/"

// The scheduler accepts the configurations in the manifests with the intended values.
func TestConfigurations(t *testing.T) {
	file := func(name string) []byte {
		content, err := os.ReadFile(deployments + name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	var beside v1.ConfigMap
	if err := yaml.UnmarshalStrict(file("config.yaml"), &beside); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"tandem-scheduler": []byte(beside.Data["config.yaml"]), "default-scheduler": file("in-place.yaml"),
	} {
		object, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := object.(*config.KubeSchedulerConfiguration)
		if err := validation.ValidateKubeSchedulerConfiguration(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := c.Profiles[0].SchedulerName; got != name {
			t.Errorf("profile %s, want %s", got, name)
		}
		others := int32(0)
		for _, p := range c.Profiles[0].Plugins.MultiPoint.Enabled {
			switch {
			case p.Name == plugin.Name && p.Weight <= others:
				t.Errorf("%s: weight %d is not above the others', %d together", name, p.Weight, others)
			case p.Name != plugin.Name:
				others += 100 * max(p.Weight, 1)
			}
		}
		if lease := c.LeaderElection.ResourceName; (lease == "kube-scheduler") != (name == "default-scheduler") {
			t.Errorf("%s: the lease is %s", name, lease)
		}
	}
}

// The command has exactly the flags of kube-scheduler.
func TestFlags(t *testing.T) {
	flags := func(cmd *cobra.Command) map[string]string {
		all := map[string]string{}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Usage + f.DefValue })
		return all
	}
	want, got := flags(app.NewSchedulerCommand()), flags(newCommand())
	if len(got) < 50 || !maps.Equal(got, want) {
		t.Errorf("%d flags, want %d", len(got), len(want))
	}
}
