// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// published returns the published part of the kubelet's settings.
func published(s configuration.Settings, err error) (v1alpha1.Kubelet, error) {
	if err != nil {
		return v1alpha1.Kubelet{}, err
	}
	k := v1alpha1.Kubelet{
		TopologyManagerPolicy: s.Policy, TopologyManagerScope: s.Scope,
		TopologyManagerPolicyOptions: s.PolicyOptions,
		CPUManagerPolicy:             s.CPUPolicy, CPUManagerPolicyOptions: s.CPUOptions,
		ReservedSystemCPUs: v1alpha1.Set(s.ReservedCPUs), MemoryManagerPolicy: s.MemoryPolicy,
	}
	if k.CPUManagerPolicy == "static" && k.ReservedSystemCPUs == "" {
		k.ReservedCPUs, err = s.ReservedAmount()
	}
	return k, err
}

// read reads the configuration in files. The kubelet's flags are unknown.
func read(files configuration.Files) (v1alpha1.Kubelet, error) {
	return published(configuration.Read(files, nil))
}

// ask reads the kubelet's own word, its flags included.
func ask(ctx context.Context, configz func(context.Context) ([]byte, error)) (v1alpha1.Kubelet, error) {
	body, err := configz(ctx)
	if err != nil {
		return v1alpha1.Kubelet{}, err
	}
	return published(configuration.Parse(body))
}
