// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// pod is one of a deployer's, on a node.
type pod struct {
	*node
	spec       corev1.PodSpec
	configMaps map[string]map[string]string // by name, then key
	volumes    map[string]string            // places on this machine, by the volume's name
}

// readSpec reads a pod's spec of testdata.
func readSpec(t *testing.T, name string) (spec corev1.PodSpec) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	ready(t, err)
	ready(t, yaml.UnmarshalStrict(content, &spec))
	return spec
}

// start starts a pod: one init container after the other to its end, then the others, which it returns.
func (p *pod) start(t *testing.T) (all []*running) {
	t.Helper()
	p.volumes = map[string]string{}
	for _, v := range p.spec.Volumes {
		p.volumes[v.Name] = p.place(t, v)
	}
	for _, c := range p.spec.InitContainers {
		r := start(t, p.process(t, c), nil)
		if code := r.Exit(t); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", c.Name, code, r.Log())
		}
	}
	var first *running
	for _, c := range p.spec.Containers {
		r := start(t, p.process(t, c), first)
		if shared := p.spec.ShareProcessNamespace; first == nil && shared != nil && *shared {
			first = r
		}
		all = append(all, r)
	}
	return all
}

// execute runs a command with what the pod's first container has, to its end, and returns what it prints.
func (p *pod) execute(t *testing.T, command ...string) string {
	t.Helper()
	c := p.spec.Containers[0]
	c.Command, c.Args = command, nil
	r := start(t, p.process(t, c), nil)
	r.Exit(t)
	return r.Log()
}

// place is where a volume is.
func (p *pod) place(t *testing.T, v corev1.Volume) string {
	t.Helper()
	switch {
	case v.HostPath != nil:
		place := filepath.Join(p.root, v.HostPath.Path)
		kind := corev1.HostPathUnset
		if v.HostPath.Type != nil {
			kind = *v.HostPath.Type
		}
		_, err := os.Stat(place)
		switch {
		case kind == corev1.HostPathDirectoryOrCreate, kind == corev1.HostPathUnset && err != nil: // as runtimes do
			ready(t, os.MkdirAll(place, 0o755))
		default:
			ready(t, err)
		}
		return place
	case v.ConfigMap != nil:
		dir := t.TempDir()
		for key, content := range p.configMaps[v.ConfigMap.Name] {
			write(t, filepath.Join(dir, "..data", key), content)
			ready(t, os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)))
		}
		return dir
	case v.EmptyDir != nil:
		return t.TempDir()
	}
	t.Fatalf("volume %s is of a kind that this test does not know", v.Name)
	return ""
}

// process is a container as a runtime starts it: a root of its own, made of the image's.
func (p *pod) process(t *testing.T, c corev1.Container) process {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	execute(t, "cp", "--archive", "--link", p.image, root)
	r := process{Root: root, Dir: "/root", Env: append(slices.Clone(environment), p.variables...)}
	if c.WorkingDir != "" {
		r.Dir = c.WorkingDir
	}
	given := map[string]string{}
	for _, v := range c.Env {
		if v.ValueFrom != nil {
			v.Value = nodeName // of all that manifests ask for
		}
		given[v.Name] = v.Value
		r.Env = append(r.Env, v.Name+"="+v.Value)
	}
	r.Command = slices.Concat(c.Command, c.Args)
	if len(c.Command) == 0 {
		r.Command = slices.Concat(entrypoint, c.Args)
	}
	for i := range r.Command {
		for name, value := range given {
			r.Command[i] = strings.ReplaceAll(r.Command[i], "$("+name+")", value)
		}
	}
	secure(&r, c.SecurityContext)
	p.mounts(t, &r, c)
	p.runtime(t, r)
	return r
}

// usual are the capabilities of a container whose manifest says nothing of them (defaultUnixCaps in
// containerd's pkg/oci).
var usual = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_NET_RAW,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE,
	unix.CAP_SYS_CHROOT, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
}

func secure(r *process, s *corev1.SecurityContext) {
	r.Capabilities = usual
	if s == nil {
		return
	}
	r.ReadOnly = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
	if s.Privileged != nil && *s.Privileged {
		r.Capabilities = nil // whatever else it says
		return
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Drop, "ALL") {
		r.Capabilities = []uintptr{}
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "SYS_ADMIN") {
		r.Capabilities = append(slices.Clone(r.Capabilities), unix.CAP_SYS_ADMIN)
	}
}

// mounts are the node's sysfs and device nodes, what the manifest mounts, and the service account.
func (p *pod) mounts(t *testing.T, r *process, c corev1.Container) {
	t.Helper()
	privileged := r.Capabilities == nil
	all := []mount{
		{From: filepath.Join(p.root, "sys"), To: "/sys", ReadOnly: !privileged},
		{From: filepath.Join(p.root, "dev"), To: "/dev"},
		{From: p.account, To: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
	}
	for _, m := range c.VolumeMounts {
		from, ok := p.volumes[m.Name]
		if !ok {
			t.Fatalf("%s mounts %s, which is no volume", c.Name, m.Name)
		}
		all = append(all, mount{From: filepath.Join(from, m.SubPath), To: m.MountPath, ReadOnly: m.ReadOnly})
	}
	ready(t, os.MkdirAll(filepath.Join(r.Root, "proc"), 0o755))
	for _, m := range append(all, p.extra...) {
		m.To = filepath.Clean(m.To)
		info, err := os.Stat(m.From)
		ready(t, err)
		// What lies below another mount is made there, as runtimes do.
		target := filepath.Join(r.Root, m.To)
		for _, before := range r.Mounts {
			if below, ok := strings.CutPrefix(m.To, before.To+"/"); ok {
				target = filepath.Join(before.From, below)
			}
		}
		if info.IsDir() {
			ready(t, os.MkdirAll(target, 0o755))
		} else if _, err := os.Stat(target); err != nil {
			write(t, target, "")
		}
		r.Mounts = append(r.Mounts, m)
	}
}

// runtime does what NVIDIA's container runtime does before a container starts whose environment asks for it:
// it puts the driver's library in and has the loader know it.
func (p *pod) runtime(t *testing.T, r process) {
	t.Helper()
	if p.library == "" || !asksForGPUs(r.Env) {
		return
	}
	folder := filepath.Join(r.Root, "usr/lib64")
	ready(t, os.MkdirAll(folder, 0o755))
	execute(t, "cp", p.library, folder)
	execute(t, "ldconfig", "-r", r.Root, "/usr/lib64")
}

// asksForGPUs reports whether NVIDIA_VISIBLE_DEVICES says all; the last of several counts.
func asksForGPUs(env []string) (all bool) {
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "NVIDIA_VISIBLE_DEVICES="); ok {
			all = value == "all"
		}
	}
	return all
}
