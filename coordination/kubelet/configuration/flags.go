// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"strings"
)

// Flags are the kubelet's command line: the values of each flag, in their order.
type Flags map[string][]string

// ParseFlags reads a command line, with the program's name first.
func ParseFlags(args []string) Flags {
	flags := Flags{}
	for i := 1; i < len(args) && args[i] != "--"; i++ {
		if !strings.HasPrefix(args[i], "-") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !ok && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		}
		name = strings.ReplaceAll(name, "_", "-") // as the kubelet does (WordSepNormalizeFunc)
		flags[name] = append(flags[name], value)
	}
	return flags
}

// Last returns the value of a flag with a single value: of a repeated flag the last one counts.
func (f Flags) Last(name string) string {
	if values := f[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// pairs returns the entries of a map flag, "a=1,b=2" (MapStringString in k8s.io/component-base); of a flag
// that does not split its values each value is one entry.
func (f Flags) pairs(name string, split bool) map[string]string {
	object := map[string]string{}
	for _, value := range f[name] {
		list := []string{value}
		if split {
			list = strings.Split(value, ",")
		}
		for _, pair := range list {
			if key, value, ok := strings.Cut(pair, "="); ok {
				object[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	}
	return object
}

// reservedMemory reads "0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi" (ReservedMemoryVar in pkg/util/flag).
func (f Flags) reservedMemory(name string) (list []any) {
	for _, value := range f[name] {
		for part := range strings.SplitSeq(value, ";") {
			if strings.Contains(part, ":") {
				list = append(list, part)
			}
		}
	}
	return list
}

// override applies the flags, which take precedence over files (cmd/kubelet/app/options of Kubernetes). A
// flag replaces an object completely.
func (s *Settings) override(flags Flags) {
	texts := map[string]struct {
		key   string
		value *string
	}{
		"topology-manager-policy": {"topologyManagerPolicy", &s.Policy},
		"topology-manager-scope":  {"topologyManagerScope", &s.Scope},
		"cpu-manager-policy":      {"cpuManagerPolicy", &s.CPUPolicy},
		"memory-manager-policy":   {"memoryManagerPolicy", &s.MemoryPolicy},
		"reserved-cpus":           {"reservedSystemCPUs", &s.ReservedCPUs},
		"kube-reserved-cgroup":    {"kubeReservedCgroup", &s.KubeReservedCgroup},
		"system-reserved-cgroup":  {"systemReservedCgroup", &s.SystemReservedCgroup},
	}
	objects := map[string]struct {
		key   string
		value *map[string]string
	}{
		"topology-manager-policy-options": {"topologyManagerPolicyOptions", &s.PolicyOptions},
		"cpu-manager-policy-options":      {"cpuManagerPolicyOptions", &s.CPUOptions},
		"kube-reserved":                   {"kubeReserved", &s.KubeReserved},
		"system-reserved":                 {"systemReserved", &s.SystemReserved},
	}
	const memory = "reserved-memory"
	for flag := range flags {
		key := ""
		if text, ok := texts[flag]; ok {
			key, *text.value = text.key, flags.Last(flag)
		} else if object, ok := objects[flag]; ok {
			key, *object.value = object.key, flags.pairs(flag, flag != "cpu-manager-policy-options")
		} else if flag == memory {
			key, s.ReservedMemory = "reservedMemory", flags.reservedMemory(memory)
		}
		if key != "" {
			s.origin[key] = fmt.Sprintf("the kubelet's flag --%s", flag)
		}
	}
}
