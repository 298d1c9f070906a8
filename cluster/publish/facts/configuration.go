// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// defaults returns the kubelet's defaults (SetDefaults_KubeletConfiguration in
// pkg/kubelet/apis/config/v1beta1).
func defaults() v1alpha1.Kubelet {
	return v1alpha1.Kubelet{
		TopologyManagerPolicy: "none", TopologyManagerScope: "container", CPUManagerPolicy: "none",
		MemoryManagerPolicy: "None",
	}
}

// settings are the relevant fields of a KubeletConfiguration.
type settings struct {
	v1alpha1.Kubelet
	KubeReserved   map[string]string `json:"kubeReserved"`
	SystemReserved map[string]string `json:"systemReserved"`
}

// kubelet returns the published part. CPUs that are reserved only by number are counted like in the kubelet
// (NewManager in pkg/kubelet/cm/cpumanager/cpu_manager.go).
func (s *settings) kubelet() (v1alpha1.Kubelet, error) {
	k, milli := s.Kubelet, int64(0)
	if k.CPUManagerPolicy != "static" || k.ReservedSystemCPUs != "" {
		return k, nil
	}
	for key, reserved := range map[string]map[string]string{
		"kubeReserved": s.KubeReserved, "systemReserved": s.SystemReserved,
	} {
		text, given := reserved["cpu"]
		if !given {
			continue
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return k, fmt.Errorf("read %s, cpu %q: %w", key, text, err)
		}
		milli += quantity.MilliValue()
	}
	k.ReservedCPUs = int((milli + 999) / 1000)
	return k, nil
}

// read reads the configuration in files. It ignores the kubelet's flags.
func read(files configuration.Files) (v1alpha1.Kubelet, error) {
	s := settings{Kubelet: defaults()}
	if err := files.Decode(&s); err != nil {
		return v1alpha1.Kubelet{}, err
	}
	return s.kubelet()
}

// ask reads the kubelet's own word, its flags included (installConfigz in pkg/kubelet/server).
func ask(ctx context.Context, configz func(context.Context) ([]byte, error)) (v1alpha1.Kubelet, error) {
	body, err := configz(ctx)
	if err != nil {
		return v1alpha1.Kubelet{}, err
	}
	answer := struct {
		Kubelet *settings `json:"kubeletconfig"`
	}{}
	if err := json.Unmarshal(body, &answer); err != nil {
		return v1alpha1.Kubelet{}, fmt.Errorf("parse the kubelet's /configz: %w", err)
	}
	if answer.Kubelet == nil || answer.Kubelet.TopologyManagerPolicy == "" {
		return v1alpha1.Kubelet{}, errors.New("parse the kubelet's /configz: it has no topologyManagerPolicy")
	}
	return answer.Kubelet.kubelet()
}
