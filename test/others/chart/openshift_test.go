// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const openshiftDir = "../../../deployments/openshift/"

// constraints are the fields of OpenShift's SecurityContextConstraints (security.openshift.io/v1) that the
// file sets.
type constraints struct {
	APIVersion, Kind                              string
	Metadata                                      struct{ Name string }
	Users, Volumes                                []string
	AllowHostDirVolumePlugin                      bool
	AllowHostNetwork, AllowHostPorts              bool
	AllowHostIPC, AllowHostPID                    bool
	AllowPrivilegedContainer                      bool
	AllowPrivilegeEscalation                      bool
	AllowedCapabilities, RequiredDropCapabilities []string
	ReadOnlyRootFilesystem                        bool
	RunAsUser, SELinuxContext                     struct{ Type string }
	FSGroup, SupplementalGroups                   struct{ Type string }
	SeccompProfiles                               []string
}

// TestOpenShiftConstraints: OpenShift's constraints for the daemons permit the pods of both modes, and are no
// wider than these pods.
func TestOpenShiftConstraints(t *testing.T) {
	content, err := os.ReadFile(openshiftDir + "scc.yaml")
	ready(t, err)
	var scc constraints
	ready(t, yaml.UnmarshalStrict(content, &scc))
	const more = "{cdi: {enabled: true}, gpu: {configs: {map: {a: 'version: v1'}}}, " +
		"securityContext: {seLinuxOptions: {type: spc_t}}}"
	pods := slices.Concat(podsOf(t, more, "tandem-gpu"), podsOf(t, more, "tandem-rdma"),
		podsOf(t, "mode: dra", "tandem-dra"))
	volumes := []string{"projected"} // the token, which the API server adds
	hostNetwork := false
	for _, pod := range pods {
		hostNetwork = hostNetwork || pod.Spec.HostNetwork
		if pod.Spec.HostPID || pod.Spec.HostIPC {
			t.Error("a daemon wants more of the node than the constraints permit")
		}
		for _, v := range pod.Spec.Volumes {
			volumes = append(volumes, kindOf(v))
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			checkContainer(t, c)
		}
	}
	slices.Sort(volumes)
	if diff := cmp.Diff(slices.Compact(volumes), scc.Volumes); diff != "" {
		t.Errorf("volumes (-pods +constraints):\n%s", diff)
	}
	if !scc.AllowHostDirVolumePlugin || scc.AllowHostNetwork != hostNetwork || scc.AllowHostPID ||
		scc.AllowHostIPC || scc.AllowPrivilegedContainer || scc.AllowPrivilegeEscalation ||
		!scc.ReadOnlyRootFilesystem || len(scc.AllowedCapabilities) > 0 ||
		!slices.Equal(scc.RequiredDropCapabilities, []string{"ALL"}) ||
		scc.RunAsUser.Type != "RunAsAny" || scc.SELinuxContext.Type != "RunAsAny" ||
		!slices.Equal(scc.SeccompProfiles, []string{"runtime/default"}) {
		t.Errorf("the constraints are not those of the pods: %+v", scc)
	}
}

// kindOf is the type of a volume as in SecurityContextConstraints.
func kindOf(v corev1.Volume) string {
	switch {
	case v.HostPath != nil:
		return "hostPath"
	case v.ConfigMap != nil:
		return "configMap"
	case v.EmptyDir != nil:
		return "emptyDir"
	default:
		return v.String()
	}
}

// checkContainer expects what the constraints require of each container.
func checkContainer(t *testing.T, c corev1.Container) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil ||
		*s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
		s.Capabilities == nil || len(s.Capabilities.Add) > 0 || s.SeccompProfile == nil {
		t.Errorf("%s has the security context %v, which the constraints do not permit", c.Name, s)
	}
}

// TestOpenShiftKubelet: the KubeletConfig has the settings of deployments/kubelet.
func TestOpenShiftKubelet(t *testing.T) {
	own := manifest(t, "deployments/openshift/kubeletconfig.yaml")[0]
	settings, _ := own.at("spec", "kubeletConfig").(map[string]any)
	want := map[string]any(manifest(t, "deployments/kubelet/config.yaml")[0])
	delete(want, "apiVersion")
	delete(want, "kind")
	if diff := cmp.Diff(want, settings); diff != "" {
		t.Errorf("the settings (-deployments/kubelet +deployments/openshift):\n%s", diff)
	}
}
