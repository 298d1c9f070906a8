// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"slices"
	"strings"
	"testing"
)

// sources are the manifests by which people install the device plugins, by a name.
func sources(t *testing.T) map[string][]object {
	t.Helper()
	all := map[string][]object{"base": parse(t, kustomize(t, "../../../deployments/base"))}
	for name, values := range cases(t) {
		if strings.Contains(values, "mode: dra") {
			continue
		}
		rendered, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = parse(t, rendered)
	}
	return all
}

// daemonSet is the pod template's spec and metadata of a daemon, and its container.
func daemonSet(t *testing.T, objects []object, name string) (template, spec, container object) {
	t.Helper()
	for _, o := range objects {
		if o.name() == "DaemonSet/"+name {
			template, _ := o.at("spec", "template").(map[string]any)
			spec, _ := template["spec"].(map[string]any)
			return template, spec, spec["containers"].([]any)[0].(map[string]any)
		}
	}
	t.Fatalf("there is no DaemonSet %s", name)
	return nil, nil, nil
}

// TestTypeOfDriverRoot: a mistyped folder is not created on the node. With both vendors, a node of the other
// vendor has no such folder.
func TestTypeOfDriverRoot(t *testing.T) {
	const driver = "/run/nvidia/driver"
	for values, want := range map[string]string{
		"gpu: {vendor: nvidia, driverRoot: " + driver + "}":              driver + ", type: Directory}",
		"gpu: {vendor: auto, driverRoot: /}":                             "/, type: Directory}",
		"gpu: {vendor: auto, driverRoot: " + driver + "}":                driver + ", type: DirectoryOrCreate}",
		"{mode: dra, gpu: {vendor: nvidia, driverRoot: " + driver + "}}": driver + ", type: Directory}",
		"{mode: dra, gpu: {vendor: auto, driverRoot: " + driver + "}}":   driver + ", type: DirectoryOrCreate}",
	} {
		rendered, err := render(t, values)
		if err != nil || !strings.Contains(rendered, "hostPath: {path: "+want) {
			t.Errorf("%s: no volume %s: %v", values, want, err)
		}
	}
}

// hostPaths are the node's folders by where the container has them.
func hostPaths(spec, container object) map[string]string {
	volumes, paths := map[string]string{}, map[string]string{}
	for _, v := range spec["volumes"].([]any) {
		volume := object(v.(map[string]any))
		name, _ := volume.at("name").(string)
		volumes[name], _ = volume.at("hostPath", "path").(string)
	}
	for _, m := range container["volumeMounts"].([]any) {
		mount := m.(map[string]any)
		if path := volumes[mount["name"].(string)]; path != "" {
			paths[mount["mountPath"].(string)] = path
		}
	}
	return paths
}

// labels are those of which a node needs one.
func labels(spec object) (keys []string) {
	terms, _ := spec.at("affinity", "nodeAffinity",
		"requiredDuringSchedulingIgnoredDuringExecution").(map[string]any)
	for _, term := range terms["nodeSelectorTerms"].([]any) {
		for _, expression := range term.(map[string]any)["matchExpressions"].([]any) {
			keys = append(keys, expression.(map[string]any)["key"].(string))
		}
	}
	return keys
}

// TestScheduling: the pods come to the nodes to which those of NVIDIA's chart come, and to AMD's.
func TestScheduling(t *testing.T) {
	t.Attr("parity", "nvidia/scheduling")
	nvidia := []string{"feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.present"}
	amd := []string{
		"feature.node.kubernetes.io/pci-1200_1002.present", "feature.node.kubernetes.io/pci-1002.present",
	}
	manifests := sources(t)
	for name, want := range map[string][]string{
		"base": slices.Concat(amd, nvidia), "default": slices.Concat(amd, nvidia), "nvidia": nvidia,
	} {
		_, spec, _ := daemonSet(t, manifests[name], "tandem-gpu")
		if got := spec["priorityClassName"]; got != "system-node-critical" {
			t.Errorf("%s: priority class %v", name, got)
		}
		tolerations := text(spec["tolerations"])
		for _, toleration := range []string{
			`{"key":"CriticalAddonsOnly","operator":"Exists"}`,
			`{"effect":"NoSchedule","key":"nvidia.com/gpu","operator":"Exists"}`,
		} {
			if !strings.Contains(tolerations, toleration) {
				t.Errorf("%s: the tolerations lack %s: %s", name, toleration, tolerations)
			}
		}
		got := labels(spec)
		for _, label := range want {
			if !slices.Contains(got, label) {
				t.Errorf("%s: no node is chosen by %s: %q", name, label, got)
			}
		}
		if name == "nvidia" && strings.Contains(text(got), "1002") {
			t.Errorf("%s: AMD's nodes are chosen: %q", name, got)
		}
	}
}

// TestFoldersOfGPUPlugins: what the charts of AMD and NVIDIA mount.
func TestFoldersOfGPUPlugins(t *testing.T) {
	t.Attr("parity", "amd/helm-unprivileged")
	const plugins, exporter = "/var/lib/kubelet/device-plugins", "/var/lib/amd-metrics-exporter"
	manifests := sources(t)
	for name, want := range map[string]map[string]string{
		"base":    {plugins: plugins, exporter: exporter},
		"default": {plugins: plugins, exporter: exporter},
		"nvidia":  {plugins: plugins, "/var/run/cdi": "/var/run/cdi", "/driver-root": "/run/nvidia/driver"},
	} {
		_, spec, container := daemonSet(t, manifests[name], "tandem-gpu")
		paths := hostPaths(spec, container)
		for inside, outside := range want {
			if paths[inside] != outside {
				t.Errorf("%s: %s is the node's %q, want %s", name, inside, paths[inside], outside)
			}
		}
		rights := text(container["securityContext"])
		for _, right := range []string{`"privileged":false`, `"drop":["ALL"]`, `"allowPrivilegeEscalation":false`} {
			if !strings.Contains(rights, right) {
				t.Errorf("%s: no %s: %s", name, right, rights)
			}
		}
	}
}

// TestFolderOfCDI: both daemons write where the container runtime reads, whatever that is called.
func TestFolderOfCDI(t *testing.T) {
	t.Attr("parity", "nvidia/cdi-spec-file")
	const folder = "/run/cdi-of-mine"
	both := []string{"tandem-gpu", "tandem-rdma"}
	for values, daemons := range map[string][]string{
		"cdi: {enabled: true, dir: " + folder + "}":                                       both,
		"{cdi: {dir: " + folder + "}, gpu: {deviceListStrategy: cdi-cri, driverRoot: /}}": both[:1],
	} {
		rendered, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range daemons {
			_, spec, container := daemonSet(t, parse(t, rendered), name)
			flag := map[string]string{"tandem-gpu": "--cdi-root=", "tandem-rdma": "--cdi-dirs=/etc/cdi,"}[name]
			if got := hostPaths(spec, container)[folder]; got != folder ||
				!strings.Contains(text(container["args"]), `"`+flag+folder+`"`) {
				t.Errorf("%s: %s has %q: %s", values, name, got, text(container["args"]))
			}
		}
	}
}

// TestShapeOfVFPlugin: the node's network, a root that is read-only, and a mount for whatever folder is
// written to. The SR-IOV network operator finds the pods by a label.
func TestShapeOfVFPlugin(t *testing.T) {
	t.Attr("parity", "sriov/daemonset-shape")
	for name, objects := range sources(t) {
		template, spec, container := daemonSet(t, objects, "tandem-rdma")
		if spec["hostNetwork"] != true {
			t.Errorf("%s: not in the node's network", name)
		}
		if container.at("securityContext", "readOnlyRootFilesystem") != true {
			t.Errorf("%s: the root can be written to", name)
		}
		paths := hostPaths(spec, container)
		for _, arg := range container["args"].([]any) {
			flag, folder, _ := strings.Cut(arg.(string), "=")
			switch flag {
			case "--kubelet-dir":
				folder += "/device-plugins"
			case "--run-dir", "--devinfo-dir":
			default:
				continue
			}
			if paths[folder] != folder {
				t.Errorf("%s: %s needs the node's %s, which is %q", name, arg, folder, paths[folder])
			}
		}
		if label := template.at("metadata", "labels", "app"); name == "sriov-operator" &&
			label != "sriov-device-plugin" {
			t.Errorf("%s: the label app is %v", name, label)
		}
	}
}

// TestTopologyFileOfBoth: the daemons agree on who shares a switch only if both have the file.
func TestTopologyFileOfBoth(t *testing.T) {
	manifests := sources(t)
	for _, name := range []string{"all", "nvidia"} {
		var volumes []string
		for _, daemon := range []string{"tandem-gpu", "tandem-rdma"} {
			_, spec, container := daemonSet(t, manifests[name], daemon)
			if !strings.Contains(text(container["args"]), `"--topology-file=/topology/topo.xml"`) {
				t.Errorf("%s: %s is not told of the file", name, daemon)
			}
			for _, m := range container["volumeMounts"].([]any) {
				mount := m.(map[string]any)
				if mount["name"] == "topology" &&
					(mount["readOnly"] != true || !strings.HasPrefix("/topology/topo.xml", mount["mountPath"].(string))) {
					t.Errorf("%s: %s has it as %v", name, daemon, mount)
				}
			}
			for _, v := range spec["volumes"].([]any) {
				if v.(map[string]any)["name"] == "topology" {
					volumes = append(volumes, text(v))
				}
			}
		}
		if len(volumes) != 2 || volumes[0] != volumes[1] {
			t.Errorf("%s: the volumes are %q", name, volumes)
		}
	}
}
