// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// draDaemonSets are those of mode dra, of the chart with several values and of kustomize.
func draDaemonSets(t *testing.T) map[string]appsv1.DaemonSet {
	t.Helper()
	streams := map[string]string{"kustomize": kustomize(t, "../../../deployments/dra")}
	for name, values := range map[string]string{
		"default": "mode: dra",
		"amd": "{mode: dra, gpu: {vendor: amd, privileged: true}, " +
			"metrics: {enabled: true, hostAddress: 0.0.0.0, podMonitor: {enabled: true}}}",
		"nvidia": "{mode: dra, gpu: {vendor: nvidia, driverRoot: /run/nvidia/driver}, kubeletDir: /opt/kubelet}",
		"vfs":    "{mode: dra, gpu: {enabled: false}, runDir: /run/other, cdi: {dir: /etc/cdi}}",
	} {
		rendered, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		streams[name] = rendered
	}
	all := map[string]appsv1.DaemonSet{}
	for name, stream := range streams {
		for _, o := range parse(t, stream) {
			if o.at("kind") == "DaemonSet" {
				if o.name() != "DaemonSet/tandem-dra" {
					t.Errorf("%s: a %s in mode dra", name, o.name())
				}
				all[name] = decode[appsv1.DaemonSet](t, o)
			}
		}
	}
	return all
}

// TestNoGapInARollout: two pods may be on a node at a time, so that nothing of them may be a port of the
// node, and each is asked at a socket of its own.
func TestNoGapInARollout(t *testing.T) {
	for name, d := range draDaemonSets(t) {
		spec, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		rolling := d.Spec.UpdateStrategy.RollingUpdate
		if rolling == nil || rolling.MaxSurge.IntValue() != 1 || rolling.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: the update strategy is %v", name, rolling)
		}
		if !spec.HostNetwork || len(c.Ports) > 0 {
			t.Errorf("%s: host network %t, ports %v", name, spec.HostNetwork, c.Ports)
		}
		at := ""
		for _, arg := range c.Args {
			if strings.HasPrefix(arg, "--health-probe-bind-address=unix:/probe/") {
				at = arg
			}
		}
		if at == "" {
			t.Errorf("%s: the flags are %q", name, c.Args)
		}
		for what, probe := range map[string][]string{
			"healthz": c.LivenessProbe.Exec.Command, "readyz": c.ReadinessProbe.Exec.Command,
		} {
			if len(probe) != 3 || probe[0] != "tandem-dra" || probe[1] != "--probe="+what || probe[2] != at {
				t.Errorf("%s: %s is asked by %q", name, what, probe)
			}
		}
		for _, v := range spec.Volumes {
			if v.Name == "probe" && v.EmptyDir == nil {
				t.Errorf("%s: pods share the socket of the probes", name)
			}
		}
		env := map[string]string{}
		for _, e := range c.Env {
			if e.ValueFrom != nil {
				env[e.Name] = e.ValueFrom.FieldRef.FieldPath
			}
		}
		if env["NODE_NAME"] != "spec.nodeName" || env["POD_UID"] != "metadata.uid" {
			t.Errorf("%s: the environment is %v", name, env)
		}
	}
}

// TestFoldersOfDRA: what the daemon writes to is mounted where the kubelet, the container runtime and Multus
// look for it, and as little else as will do.
func TestFoldersOfDRA(t *testing.T) {
	for name, d := range draDaemonSets(t) {
		spec, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		kubelet, run, cdi := "/var/lib/kubelet", "/run/tandem", "/var/run/cdi"
		switch name {
		case "nvidia":
			kubelet = "/opt/kubelet"
		case "vfs":
			run, cdi = "/run/other", "/etc/cdi"
		}
		node := map[string]string{}
		for _, v := range spec.Volumes {
			if v.HostPath != nil {
				node[v.Name] = v.HostPath.Path
			}
		}
		written := map[string]bool{}
		for _, m := range c.VolumeMounts {
			if node[m.Name] != "" && node[m.Name] != m.MountPath && m.Name != "dev" && m.Name != "driver-root" {
				t.Errorf("%s: %s of the node is %s", name, node[m.Name], m.MountPath)
			}
			if !m.ReadOnly && node[m.Name] != "" {
				written[m.MountPath] = true
			}
		}
		for _, folder := range []string{
			kubelet + "/plugins/tandem.dev", kubelet + "/plugins_registry", run, cdi,
			"/var/run/k8s.cni.cncf.io/devinfo/dp",
		} {
			if !written[folder] {
				t.Errorf("%s: %s cannot be written to", name, folder)
			}
			delete(written, folder)
		}
		if len(written) > 0 {
			t.Errorf("%s: nobody needs to write to %v", name, written)
		}
		if s := c.SecurityContext; !*s.ReadOnlyRootFilesystem || name != "amd" && (*s.Privileged ||
			*s.AllowPrivilegeEscalation || s.Capabilities.Drop[0] != "ALL" || len(s.Capabilities.Add) > 0) {
			t.Errorf("%s: the rights are %v", name, s)
		}
		if spec.HostPID || spec.HostIPC || !*spec.AutomountServiceAccountToken {
			t.Errorf("%s: host PID %t, IPC %t, token %t", name, spec.HostPID, spec.HostIPC,
				*spec.AutomountServiceAccountToken)
		}
	}
}

// TestDevicePluginsSeeClaims: on a node that was in mode dra both plugins see what its claims still hold.
func TestDevicePluginsSeeClaims(t *testing.T) {
	const folder = "/var/lib/kubelet/plugins/tandem.dev"
	all := sources(t)
	for _, name := range []string{"base", "default"} {
		for _, daemon := range []string{"tandem-gpu", "tandem-rdma"} {
			_, spec, container := daemonSet(t, all[name], daemon)
			if got := hostPaths(spec, container)[folder]; got != folder {
				t.Errorf("%s: %s has %q in %s", name, daemon, got, folder)
			}
		}
	}
}
