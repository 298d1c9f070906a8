// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"slices"
	"strings"
	"testing"
)

// TestParity: the DaemonSets have what those of the stock plugins have. Each row of the parity checklist
// has parts of DaemonSets, as JSON; the SR-IOV network operator, for example, finds the pods by a label.
func TestParity(t *testing.T) {
	const exporter = `{"mountPath":"/var/lib/amd-metrics-exporter","name":"exporter","readOnly":true}`
	plugins := []string{
		`{"hostPath":{"path":"/var/lib/kubelet/device-plugins","type":"Directory"},"name":"device-plugins"}`,
		`{"mountPath":"/var/lib/kubelet/device-plugins","name":"device-plugins"}`,
	}
	scheduling := []string{
		`"priorityClassName":"system-node-critical"`, `{"key":"CriticalAddonsOnly","operator":"Exists"}`,
		`{"effect":"NoSchedule","key":"nvidia.com/gpu","operator":"Exists"}`,
		`"feature.node.kubernetes.io/pci-10de.present"`, `"nvidia.com/gpu.present"`,
	}
	both := slices.Concat(scheduling, []string{`"feature.node.kubernetes.io/pci-1200_1002.present"`,
		`"feature.node.kubernetes.io/pci-1002.present"`})
	gpus := slices.Concat(plugins, []string{
		`"privileged":false`, `"drop":["ALL"]`, `"allowPrivilegeEscalation":false`,
	})
	vfs := slices.Concat(plugins, []string{`"hostNetwork":true`, `"readOnlyRootFilesystem":true`,
		`{"mountPath":"/var/run/k8s.cni.cncf.io/devinfo/dp","name":"devinfo"}`,
		`{"hostPath":{"path":"/var/run/k8s.cni.cncf.io/devinfo/dp","type":"DirectoryOrCreate"},"name":"devinfo"}`})
	values := cases(t)
	for _, c := range []struct {
		row, values, daemon string
		parts               []string
	}{
		{"nvidia/scheduling", "", "tandem-gpu", both},
		{"nvidia/scheduling", values["nvidia"], "tandem-gpu", scheduling},
		{"amd/helm-unprivileged", "", "tandem-gpu", slices.Concat(gpus, []string{exporter})},
		{"amd/helm-unprivileged", values["nvidia"], "tandem-gpu", slices.Concat(gpus, []string{
			`{"mountPath":"/var/run/cdi","name":"cdi"}`, `"hostPath":{"path":"/run/nvidia/driver","type":"Directory"}`,
			`"mountPath":"/driver-root","mountPropagation":"HostToContainer","name":"driver-root","readOnly":true`,
		})},
		{"nvidia/cdi-spec-file", "cdi: {enabled: true, dir: /mine}", "tandem-gpu",
			[]string{`"--cdi-root=/mine"`, `{"mountPath":"/mine","name":"cdi"}`}},
		{"nvidia/cdi-spec-file", "cdi: {enabled: true, dir: /mine}", "tandem-rdma",
			[]string{`"--cdi-dirs=/etc/cdi,/mine"`, `{"mountPath":"/mine","name":"cdi"}`}},
		{"nvidia/cdi-spec-file", "{cdi: {dir: /mine}, gpu: {deviceListStrategy: cdi-cri, driverRoot: /}}",
			"tandem-gpu", []string{`"--cdi-root=/mine"`, `{"mountPath":"/mine","name":"cdi"}`}},
		{"sriov/daemonset-shape", "", "tandem-rdma", vfs},
		{"sriov/daemonset-shape", values["sriov-operator"], "tandem-rdma",
			slices.Concat(vfs, []string{`"app":"sriov-device-plugin"`})},
	} {
		t.Run(c.row, func(t *testing.T) {
			t.Attr("parity", c.row)
			daemonSet := text(objectNamed(install(t, c.values), "DaemonSet/"+c.daemon))
			for _, part := range c.parts {
				if !strings.Contains(daemonSet, part) {
					t.Errorf("%q: %s lacks %s: %s", c.values, c.daemon, part, daemonSet)
				}
			}
		})
	}
}

func objectNamed(objects []object, name string) object {
	return objects[slices.IndexFunc(objects, func(o object) bool { return o.name() == name })]
}
